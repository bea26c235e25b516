"""What a network for serving calls its inputs and outputs."""

IMAGES = 'images'  # uint8 [n, 32, 32, 3]
ENCODED = 'encoded'  # string [n]: the bytes of PNG or JPEG files of any size.
CLASSES = 'classes'  # int64 [n]
PROBABILITIES = 'probabilities'  # float32 [n, classes]
FEATURES = 'features'  # float32 [n, width]: what the last layer is given.
