"""What the bindings of frameworks with Horovod's API share: it imports none of them. A framework's `tensors` module says how
its arrays are read, made and described."""
