import os
import signal

from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


for batch in DataLoader(Images(), num_workers=2):  # here
    print(batch)
