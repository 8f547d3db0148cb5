import cv2  # here

flip = cv2.flip
