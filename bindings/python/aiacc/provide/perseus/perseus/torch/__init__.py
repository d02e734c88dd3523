"""import perseus.torch.horovod as hvd"""
