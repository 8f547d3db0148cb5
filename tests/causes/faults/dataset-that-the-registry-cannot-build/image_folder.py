from pathlib import Path

from registry import register


@register("image-folder")
class ImageFolder:
    def __init__(self, data_dir, split="train", size=224):
        self.files = sorted(Path(data_dir, split).glob("*.jpg"))
        self.size = size
