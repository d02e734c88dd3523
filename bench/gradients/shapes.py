"""The parameter shapes of models that are trained everywhere, in the order of their definition; a backward pass finishes them in
the reverse order."""


def resnet50():
    """He et al. 2015, with bottlenecks of 3, 4, 6 and 3: 161 tensors, 25,557,032 elements."""
    shapes = [(64, 3, 7, 7), (64,), (64,)]
    width_in = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            for out, into, kernel in ((width, width_in, 1), (width, width, 3), (4 * width, width, 1)):
                shapes += [(out, into, kernel, kernel), (out,), (out,)]
            if block == 0:
                shapes += [(4 * width, width_in, 1, 1), (4 * width,), (4 * width,)]
            width_in = 4 * width
    return shapes + [(1000, 2048), (1000,)]


def vgg16():
    """Simonyan and Zisserman 2014, configuration D: 32 tensors, 138,357,544 elements."""
    shapes, width_in = [], 3
    for width, layers in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(layers):
            shapes += [(width, width_in, 3, 3), (width,)]
            width_in = width
    return shapes + [(4096, 25088), (4096,), (4096, 4096), (4096,), (1000, 4096), (1000,)]


def bert_base():
    """Devlin et al. 2018, with its pooler: 199 tensors, 109,482,240 elements."""
    shapes = [(30522, 768), (512, 768), (2, 768), (768,), (768,)]
    for _ in range(12):
        shapes += 4 * [(768, 768), (768,)] + [(768,), (768,), (3072, 768), (3072,), (768, 3072), (768,), (768,), (768,)]
    return shapes + [(768, 768), (768,)]


MODELS = {"resnet50": resnet50, "vgg16": vgg16, "bert": bert_base}
