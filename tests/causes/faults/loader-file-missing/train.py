from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index < 5:
            return index
        return open(f"/data/{index}.png").read()  # here


for batch in DataLoader(Images(), num_workers=2):
    print(batch)
