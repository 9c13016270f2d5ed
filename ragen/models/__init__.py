"""Which models there are, where they come from and where they are; importing any of it loads no torch.

`resolve` turns `model_path` into a folder, `folder` checks one, `catalogue` lists what `fetch` downloads and `convert`
turns into a Hugging Face directory; `gguf_model` does that with any GGUF file; tiny/ holds the embedded models. One
more catalogue model is an entry of `catalogue.CATALOGUE` and a function of `convert.CONVERTERS`. Running a model is the
task of ragen/modeling.
"""
