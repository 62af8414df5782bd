"""Words of the simulated shop's titles and queries, except the types.

Brands and series are generated from syllables; any resemblance to real names is accidental.
"""

# family -> shades; titles mostly name the shade, queries mostly the family
COLOUR_SHADES: dict[str, tuple[str, ...]] = {
    "blue": ("navy", "cobalt", "azure", "indigo", "teal"),
    "red": ("crimson", "scarlet", "burgundy", "ruby"),
    "green": ("olive", "emerald", "sage", "mint", "forest"),
    "grey": ("charcoal", "slate", "ash", "graphite"),
    "brown": ("chocolate", "tan", "chestnut", "mocha"),
    "white": ("ivory", "snow", "pearl", "alabaster"),
    "black": ("onyx", "jet", "ebony", "obsidian"),
    "yellow": ("mustard", "lemon", "saffron", "amber"),
    "pink": ("blush", "rose", "fuchsia", "salmon"),
    "purple": ("lavender", "plum", "violet", "lilac"),
    "orange": ("rust", "tangerine", "apricot", "terracotta"),
    "beige": ("sand", "taupe", "oatmeal", "camel"),
}

# family -> materials
MATERIALS: dict[str, tuple[str, ...]] = {
    "wood": ("oak", "walnut", "pine", "beech", "acacia", "bamboo"),
    "metal": ("stainless steel", "aluminium", "wrought iron", "brass", "titanium"),
    "textile": ("cotton", "linen", "wool", "velvet", "polyester", "fleece", "microfiber"),
    "leather": ("full grain leather", "suede", "faux leather", "nubuck"),
    "plastic": ("acrylic", "silicone", "polypropylene", "resin"),
    "glass": ("tempered glass", "crystal", "borosilicate"),
    "ceramic": ("porcelain", "stoneware", "earthenware", "enamel"),
    "stone": ("marble", "granite", "travertine"),
    "paper": ("kraft paper", "recycled paper", "cardboard"),
}

# the words for a material family in a query
MATERIAL_WORDS: dict[str, tuple[str, ...]] = {
    "wood": ("wood", "wooden"),
    "metal": ("metal", "metallic"),
    "textile": ("fabric", "cloth"),
    "leather": ("leather",),
    "plastic": ("plastic",),
    "glass": ("glass",),
    "ceramic": ("ceramic", "clay"),
    "stone": ("stone",),
    "paper": ("paper",),
}

# scheme -> sizes, each with its notations in titles and queries
SIZES: dict[str, tuple[tuple[str, ...], ...]] = {
    "volume": (
        ("250 ml", "0.25 l", "8 oz"),
        ("500 ml", "0.5 l", "17 oz"),
        ("750 ml", "0.75 l", "25 oz"),
        ("1 l", "1000 ml", "1 liter", "34 oz"),
        ("1.5 l", "1500 ml", "51 oz"),
        ("2 l", "2000 ml", "2 liter", "68 oz"),
    ),
    "volume_large": (
        ("10 l", "10 liter", "2.6 gallon"),
        ("20 l", "20 liter", "5 gallon"),
        ("30 l", "30 liter", "8 gallon"),
        ("40 l", "40 liter", "10 gallon"),
        ("60 l", "60 liter", "16 gallon"),
    ),
    "length": (
        ("1 ft", "12 in", "12 inch", "30 cm"),
        ("3 ft", "36 in", "36 inch", "91 cm"),
        ("4 ft", "48 in", "48 inch", "122 cm"),
        ("5 ft", "60 in", "60 inch", "152 cm"),
        ("6 ft", "72 in", "72 inch", "183 cm"),
        ("8 ft", "96 in", "96 inch", "244 cm"),
    ),
    "screen": (
        ("13 inch", "13 in", "33 cm"),
        ("14 inch", "14 in", "36 cm"),
        ("15 inch", "15 in", "38 cm"),
        ("17 inch", "17 in", "43 cm"),
        ("27 inch", "27 in", "69 cm"),
    ),
    "screen_large": (
        ("32 inch", "32 in", "81 cm"),
        ("43 inch", "43 in", "109 cm"),
        ("55 inch", "55 in", "140 cm"),
        ("65 inch", "65 in", "165 cm"),
        ("75 inch", "75 in", "191 cm"),
    ),
    "storage": (
        ("64 gb", "64 gigabytes"),
        ("128 gb", "128 gigabytes"),
        ("256 gb", "256 gigabytes"),
        ("512 gb", "0.5 tb"),
        ("1 tb", "1000 gb", "1 terabyte"),
    ),
    "weight": (
        ("1 kg", "1000 g", "2.2 lb"),
        ("2 kg", "2000 g", "4.4 lb"),
        ("5 kg", "11 lb", "11 pounds"),
        ("10 kg", "22 lb", "22 pounds"),
        ("20 kg", "44 lb", "44 pounds"),
    ),
    "power": (
        ("500 w", "0.5 kw", "500 watt"),
        ("800 w", "0.8 kw", "800 watt"),
        ("1000 w", "1 kw", "1000 watt"),
        ("1500 w", "1.5 kw", "1500 watt"),
        ("2000 w", "2 kw", "2000 watt"),
    ),
    "pack": (
        ("2 pack", "pack of 2", "pair"),
        ("4 pack", "pack of 4", "set of 4"),
        ("6 pack", "pack of 6", "half dozen"),
        ("12 pack", "pack of 12", "dozen"),
        ("24 pack", "pack of 24", "24 count"),
    ),
    "bed": (
        ("twin", "single bed size", "39 x 75 in"),
        ("full", "double bed size", "54 x 75 in"),
        ("queen", "60 x 80 in", "152 x 203 cm"),
        ("king", "76 x 80 in", "193 x 203 cm"),
    ),
    "rug": (
        ("3 x 5 ft", "36 x 60 in", "91 x 152 cm"),
        ("5 x 7 ft", "60 x 84 in", "152 x 213 cm"),
        ("8 x 10 ft", "96 x 120 in", "244 x 305 cm"),
        ("9 x 12 ft", "108 x 144 in", "274 x 366 cm"),
    ),
    "seats": (
        ("2 seater", "two seat", "for two"),
        ("3 seater", "three seat", "for three"),
        ("4 seater", "four seat", "l shaped"),
    ),
    "persons": (
        ("1 person", "solo", "single"),
        ("2 person", "for two", "double"),
        ("4 person", "family size", "for four"),
        ("6 person", "for six", "group size"),
    ),
    "drawers": (("3 drawer", "three drawers"), ("4 drawer", "four drawers"), ("6 drawer", "six drawers")),
    "clothes": (
        ("small", "size s"),
        ("medium", "size m"),
        ("large", "size l"),
        ("x large", "size xl", "extra large"),
        ("xx large", "size xxl", "plus size"),
    ),
    "shoes": (
        ("size 6", "us 6", "eu 37"),
        ("size 7", "us 7", "eu 38"),
        ("size 8", "us 8", "eu 39"),
        ("size 9", "us 9", "eu 42"),
        ("size 10", "us 10", "eu 43"),
        ("size 11", "us 11", "eu 44"),
    ),
}

# audience -> the words for it
AUDIENCES: dict[str, tuple[str, ...]] = {
    "women": ("women", "womens", "ladies", "for her"),
    "men": ("men", "mens", "for him", "gents"),
    "kids": ("kids", "children", "toddler", "youth"),
}

# trait -> the words for it
TRAITS: dict[str, tuple[str, ...]] = {
    "breathable": ("breathable", "ventilated", "airy"),
    "compact": ("compact", "space saving", "mini"),
    "cordless": ("cordless", "battery powered"),
    "dimmable": ("dimmable", "adjustable brightness"),
    "extendable": ("extendable", "expandable"),
    "foldable": ("foldable", "collapsible", "folding"),
    "handmade": ("handmade", "handcrafted", "artisan"),
    "hypoallergenic": ("hypoallergenic", "allergy friendly", "for sensitive skin"),
    "insulated": ("insulated", "double wall", "keeps warm"),
    "lightweight": ("lightweight", "ultralight"),
    "noise_cancelling": ("noise cancelling", "anc"),
    "non_stick": ("non stick", "easy release"),
    "organic": ("organic", "natural", "eco friendly"),
    "quiet": ("quiet", "silent", "low noise"),
    "rechargeable": ("rechargeable", "usb charging"),
    "refillable": ("refillable", "reusable"),
    "smart": ("smart", "app controlled", "wifi"),
    "sturdy": ("sturdy", "heavy duty", "rugged"),
    "thermal": ("thermal", "warm", "winter"),
    "washable": ("washable", "machine wash", "easy clean"),
    "waterproof": ("waterproof", "water resistant", "rainproof"),
    "wireless": ("wireless", "bluetooth"),
}

# phrases that are uninformative about the product
FILLERS: tuple[str, ...] = (
    "great gift", "new model", "best value", "for home and office", "modern design", "classic style", "premium quality",
    "everyday use", "top rated", "limited edition", "for living room", "for bedroom", "for kitchen", "for garden",
    "for travel", "for camping", "for desk", "for car", "for school", "holiday gift", "elegant look", "2 year warranty",
    "with storage bag", "with carry case", "with cover", "with stand", "easy assembly", "vintage", "minimalist",
    "contemporary", "professional grade", "deluxe",
)  # fmt: skip

ONSETS = ("b", "br", "d", "dr", "f", "fl", "g", "gl", "h", "k", "kr", "l", "m", "n", "p", "pr", "r", "s", "sk", "t",
          "tr", "v", "w", "y", "z", "zw")  # fmt: skip
VOWELS = ("a", "e", "i", "o", "u")
CODAS = ("", "", "l", "n", "r", "s", "k", "m", "nd", "rv", "lt", "x")

MASS_NOUNS = frozenset({"cutlery", "silverware", "flatware", "luggage", "sleepwear", "nightwear", "shampoo",
                        "sunscreen", "sunblock", "printer ink", "hair wash", "bento"})  # fmt: skip
IRREGULAR_PLURALS = {"bookshelf": "bookshelves", "computer mouse": "computer mice", "scarf": "scarves"}


def plural(name: str) -> str:
    """The plural of a type's name: 'wine glass' -> 'wine glasses'; plurals stay unchanged."""
    if name in IRREGULAR_PLURALS:
        return IRREGULAR_PLURALS[name]
    if name in MASS_NOUNS or (name.endswith("s") and not name.endswith("ss")):
        return name
    if name.endswith(("ss", "sh", "ch", "x")):
        return name + "es"
    if name.endswith("y") and name[-2] not in "aeiou":
        return name[:-1] + "ies"
    return name + "s"
