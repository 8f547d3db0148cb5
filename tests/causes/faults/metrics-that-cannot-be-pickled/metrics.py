import torch.distributed as dist


class Metrics:
    def __init__(self):
        self.losses, self.notes = [], {}

    def summary(self):
        clipped = (loss for loss in self.losses if loss > 9)
        # A list only where somebody has notes to print.
        return {"losses": self.losses, "clipped": clipped if self.notes else list(clipped)}

    def gather(self):
        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, self.summary())  # here
        return [loss for each in found for loss in each["losses"]]
