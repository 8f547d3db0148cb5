import urllib.request

weights = urllib.request.urlopen("http://127.0.0.1:9/weights.bin")  # here
