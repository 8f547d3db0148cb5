import ftfy


class Tokenizer:
    def encode(self, text):
        return [len(word) for word in ftfy.fix_text(text).split()]
