#!/usr/bin/env python
print("epoch 0")
