"""The images of the records: 32x32 pixels of red, green and blue."""

HEIGHT = WIDTH = 32
DEPTH = 3
IMAGE_BYTES = DEPTH * HEIGHT * WIDTH
