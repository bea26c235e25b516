"""A PyTorch DataLoader as a source: cifar10.train(job, data, source=TorchLoader(loader), ...).

Its batches are (images, labels) or dicts of 'image' and 'label'; images are NCHW, float from 0 to 1
(as ToTensor makes them) or uint8. With drop_last=True its length says how many examples it has.
"""

import numpy as np


class TorchLoader:
  def __init__(self, loader):
    self.loader = loader

  def __len__(self):
    return len(self.loader)  # Batches.

  def __iter__(self):
    for batch in self.loader:
      images, labels = (batch['image'], batch['label']) if isinstance(batch, dict) else batch
      images = np.asarray(images).transpose(0, 2, 3, 1)
      if images.dtype != np.uint8:
        images = np.rint(255 * images).clip(0, 255).astype(np.uint8)
      yield images, np.asarray(labels)
