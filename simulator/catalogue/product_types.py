"""The table of the simulated shop's product types.

One type per line: names (the plain one first, then synonyms) | materials | sizes | who wears or uses it | price range |
for accessories their main type. `[department/family: traits]` starts a family; types of one family are related.
"""

from dataclasses import dataclass

TABLE = """
[furniture/seating: washable foldable sturdy]
sofa, couch, settee | textile leather | seats | - | 250-1900
armchair, accent chair, lounge chair | textile leather | - | - | 90-700
recliner, reclining chair | textile leather | - | - | 180-900
ottoman, footstool, pouf | textile leather | - | - | 30-220
bar stool, counter stool | wood metal | - | - | 40-260
office chair, desk chair, task chair | textile leather | - | - | 70-600
sofa cover, slipcover | textile | seats | - | 20-90 | sofa
chair mat, floor protector | plastic glass | - | - | 20-110 | office chair
[furniture/tables: foldable extendable sturdy]
dining table, kitchen table | wood glass metal | length | - | 120-1400
coffee table, cocktail table | wood glass stone | - | - | 60-700
desk, workstation, writing table | wood metal glass | length | - | 70-800
nightstand, bedside table | wood metal | - | - | 35-260
desk pad, blotter | leather textile | - | - | 10-45 | desk
[furniture/storage: sturdy compact extendable]
bookshelf, bookcase | wood metal | - | - | 45-420
dresser, chest of drawers | wood | drawers | - | 90-800
wardrobe, armoire, closet | wood textile | - | - | 80-1100
shoe rack, shoe organizer | wood metal plastic | - | - | 18-130
[bedroom/beds: sturdy hypoallergenic washable]
bed frame, bedstead | wood metal textile | bed | - | 110-1200
mattress | textile | bed | - | 130-1700
bunk bed | wood metal | - | kids | 190-900
mattress topper, mattress pad | textile | bed | - | 40-260 | mattress
[bedroom/bedding: hypoallergenic washable thermal]
duvet, comforter, quilt | textile | bed | - | 30-260
bed sheets, sheet set | textile | bed | - | 18-160
pillow | textile | - | - | 10-90
blanket, throw | textile | - | kids | 15-140
pillow case, pillow sham | textile | - | - | 6-40 | pillow
[decor/furnishing: washable handmade thermal]
rug, carpet | textile | rug | - | 30-900
curtain, drape, window panel | textile | length | - | 15-150
mirror, looking glass | wood metal | - | - | 25-320
wall clock, timepiece | wood metal plastic | - | - | 15-120
vase, flower holder | glass ceramic stone | - | - | 12-110
picture frame, photo frame | wood metal plastic | - | - | 7-60
candle | glass ceramic | - | - | 8-45
curtain rod, drapery pole | metal wood | length | - | 15-80 | curtain
[decor/lighting: dimmable smart rechargeable]
floor lamp, standing light | metal wood | - | - | 35-320
table lamp, bedside light | ceramic metal glass | - | - | 18-180
ceiling light, chandelier | metal glass | - | - | 30-420
string lights, fairy lights | plastic | length | - | 9-60
flashlight, torch | metal plastic | - | - | 8-90
lamp shade, light cover | textile glass | - | - | 10-70 | floor lamp
[kitchen/appliances: smart quiet compact]
kettle, water boiler | metal glass | volume | - | 20-130
toaster | metal plastic | - | - | 20-140
blender, liquidizer, smoothie maker | glass plastic | volume | - | 25-350
coffee maker, coffee machine, brewer | metal plastic | volume | - | 30-600
air fryer | plastic metal | volume | - | 45-250
microwave, microwave oven | metal | power | - | 60-350
stand mixer, dough mixer | metal | volume | - | 80-500
refrigerator, fridge | metal | - | - | 150-1800
coffee filter, filter papers | paper | pack | - | 4-20 | coffee maker
air fryer liners, fryer papers | paper plastic | pack | - | 5-22 | air fryer
blender jar, replacement pitcher | glass plastic | volume | - | 15-80 | blender
[kitchen/cooking: non_stick sturdy washable]
frying pan, skillet | metal ceramic | length | - | 15-160
saucepan, cooking pot | metal ceramic | volume | - | 15-180
wok, stir fry pan | metal | - | - | 20-130
baking sheet, cookie tray | metal plastic | pack | - | 8-50
knife set, kitchen knives | metal | pack | - | 25-350
cutting board, chopping board | wood plastic | - | - | 10-80
[kitchen/tableware: washable handmade insulated]
mug, coffee cup | ceramic glass metal | volume | - | 6-40
dinner plate, dish | ceramic glass | pack | - | 10-120
wine glass, goblet | glass | pack | - | 12-140
cutlery, silverware, flatware | metal | pack | - | 15-180
water bottle, canteen | metal plastic glass | volume | kids | 8-50
lunch box, bento | plastic metal | - | kids | 9-50
[household/cleaning: cordless quiet compact]
vacuum cleaner, vac | plastic | - | - | 50-700
mop, floor wiper | textile plastic | - | - | 12-80
trash can, garbage bin, waste bin | metal plastic | volume_large | - | 15-160
laundry hamper, laundry basket | textile plastic wood | - | - | 14-70
iron, clothes steamer | metal plastic | power | - | 20-150
vacuum bags, dust bags | paper | pack | - | 8-35 | vacuum cleaner
[electronics/mobile: waterproof wireless compact]
phone, smartphone, cell phone, mobile | glass metal | storage | - | 120-1300
tablet, slate computer | metal | storage | kids | 90-1100
smartwatch, fitness watch | metal plastic | - | women men | 60-700
phone case, phone cover | plastic leather | - | - | 8-60 | phone
screen protector, display film | glass plastic | pack | - | 5-25 | phone
tablet stand, tablet holder | metal wood | - | - | 10-60 | tablet
watch band, watch strap | leather plastic metal | - | women men | 8-70 | smartwatch
[electronics/computing: wireless quiet compact]
laptop, notebook computer | metal plastic | screen | - | 250-2400
monitor, computer screen | plastic metal | screen | - | 90-1100
keyboard | plastic metal | - | - | 15-190
computer mouse, pointing device | plastic | - | - | 8-120
printer | plastic | - | - | 60-480
external drive, portable hard drive | metal plastic | storage | - | 45-320
flash drive, memory stick, thumb drive | metal plastic | storage | - | 6-70
laptop sleeve, laptop bag | textile leather | screen | - | 14-90 | laptop
ink cartridge, printer ink | plastic | pack | - | 12-90 | printer
[electronics/audio: wireless noise_cancelling waterproof]
headphones, headset | plastic leather | - | kids | 20-450
earbuds, earphones | plastic | - | - | 12-280
speaker, loudspeaker | wood plastic textile | power | - | 20-500
microphone, mic | metal | - | - | 20-350
turntable, record player | wood plastic | - | - | 60-600
ear pads, ear cushions | leather textile | - | - | 8-35 | headphones
[electronics/video: smart wireless compact]
television, tv | plastic metal | screen_large | - | 150-2500
projector, beamer | plastic | - | - | 70-1500
camera | plastic metal | - | - | 120-2400
drone, quadcopter | plastic | - | kids | 50-1200
tv mount, wall bracket | metal | screen_large | - | 18-140 | television
tripod, camera stand | metal plastic | length | - | 18-220 | camera
[garden/lawn: cordless rechargeable waterproof]
lawn mower, grass cutter | metal plastic | power | - | 110-1500
garden hose, water pipe | plastic | length | - | 15-110
planter, flower pot | ceramic plastic wood | volume_large | - | 8-120
grill, barbecue, bbq | metal | - | - | 60-1200
patio umbrella, parasol | textile | length | - | 35-260
grill cover, barbecue tarp | textile plastic | - | - | 15-70 | grill
[tools/workshop: cordless rechargeable sturdy]
drill, power driver | metal plastic | power | - | 35-320
hammer, mallet | metal wood | - | - | 8-60
wrench, spanner | metal | pack | - | 9-120
ladder, step stool | metal wood | length | - | 25-320
toolbox, tool chest | metal plastic | - | - | 15-260
drill bits, boring set | metal | pack | - | 9-80 | drill
[outdoor/camping: waterproof lightweight foldable]
tent, camping shelter | textile | persons | - | 45-700
sleeping bag | textile | - | kids women men | 25-320
backpack, rucksack, knapsack | textile leather | volume_large | women men kids | 25-260
cooler, ice chest | plastic textile | volume_large | - | 25-350
camping chair, folding chair | textile metal | - | - | 20-130
hammock | textile | persons | - | 20-150
groundsheet, tent footprint | textile plastic | persons | - | 12-70 | tent
[sport/fitness: lightweight foldable sturdy]
bicycle, bike | metal | - | women men kids | 150-2400
dumbbell, hand weight | metal plastic | weight | - | 10-220
yoga mat, exercise mat | plastic textile | length | - | 12-110
treadmill, running machine | metal | - | - | 200-1900
skateboard | wood | - | kids | 25-160
bike lock, cycle chain | metal | length | - | 12-110 | bicycle
[fashion/clothing: breathable thermal organic]
t shirt, tee | textile | clothes | women men kids | 8-50
hoodie, hooded sweatshirt | textile | clothes | women men kids | 18-90
sweater, jumper, pullover | textile | clothes | women men kids | 20-160
jacket, coat | textile leather | clothes | women men kids | 35-350
jeans, denim trousers | textile | clothes | women men kids | 25-150
dress, gown | textile | clothes | women kids | 20-220
pajamas, sleepwear, nightwear | textile | clothes | women men kids | 15-90
swimsuit, bathing suit | textile | clothes | women kids | 15-110
[fashion/shoes: breathable waterproof lightweight]
sneakers, trainers, running shoes | textile leather | shoes | women men kids | 30-190
boots | leather textile | shoes | women men kids | 40-280
sandals, flip flops | leather plastic | shoes | women men kids | 12-120
slippers, house shoes | textile leather | shoes | women men kids | 10-70
[fashion/carried: handmade lightweight waterproof]
belt, waistband | leather textile | - | women men | 10-90
wallet, billfold | leather textile | - | women men | 12-110
handbag, purse | leather textile | - | women | 25-450
scarf, shawl | textile | - | women men kids | 10-120
gloves, mittens | textile leather | clothes | women men kids | 8-80
sunglasses, shades | plastic metal | - | women men kids | 12-220
suitcase, luggage | plastic textile | volume_large | - | 45-450
[beauty/care: organic cordless hypoallergenic]
shampoo, hair wash | - | volume | women men | 5-40
moisturizer, face cream | - | volume | women men | 7-90
hair dryer, blow dryer | plastic metal | power | - | 18-300
electric shaver, beard trimmer | plastic metal | - | men women | 20-260
toothbrush | plastic wood | pack | kids | 4-140
sunscreen, sunblock | - | volume | kids | 7-45
[family/baby: foldable lightweight washable]
stroller, pushchair, buggy | metal textile | - | - | 70-900
high chair, feeding chair | wood plastic | - | - | 40-280
baby monitor, nursery camera | plastic | - | - | 35-260
rain cover, stroller shield | plastic | - | - | 10-40 | stroller
[family/toys: organic handmade washable]
building blocks, construction bricks | wood plastic | pack | - | 12-150
puzzle, jigsaw | paper wood | - | kids | 8-45
stuffed animal, plush toy, soft toy | textile | length | - | 8-70
doll | textile plastic | - | - | 10-90
[pets/animals: washable sturdy foldable]
dog bed, puppy cushion | textile | clothes | - | 18-150
dog leash, lead | textile leather | length | - | 7-45
cat tree, scratching tower | wood textile | - | - | 30-220
aquarium, fish tank | glass plastic | volume_large | - | 30-480
pet carrier, cat crate | plastic textile | - | - | 20-120
[hobby/music: handmade lightweight sturdy]
guitar | wood | - | kids | 70-1400
ukulele | wood | - | kids | 25-220
drum set, percussion kit | metal wood | - | kids | 80-1300
guitar strings, string set | metal plastic | pack | - | 5-35 | guitar
[office/paper: sturdy refillable compact]
notebook, journal | paper leather | pack | - | 4-40
pen, ballpoint | metal plastic | pack | - | 3-80
whiteboard, dry erase board | metal glass | length | - | 15-220
paper shredder, document cutter | plastic metal | volume_large | - | 30-280
"""


@dataclass(frozen=True, slots=True)
class ProductType:
    """Properties shared by all products of one type."""

    names: tuple[str, ...]  # the plain one first
    department: str
    family: str
    traits: tuple[str, ...]  # keys of words.TRAITS
    materials: tuple[str, ...]  # keys of words.MATERIALS; empty: none
    sizes: str | None  # key of catalogue_words.SIZES
    audiences: tuple[str, ...]  # keys of words.AUDIENCES
    price: tuple[float, float]  # lowest and highest, in the shop's currency
    accessory_of: str | None  # the plain name of the main type


def product_types(table: str = TABLE) -> tuple[ProductType, ...]:
    """Parses the table, in its order."""
    types: list[ProductType] = []
    department, family, traits = "", "", ()  # type: str, str, tuple[str, ...]
    for line in table.strip().splitlines():
        if line.startswith("["):
            place, _, named = line.strip("[]").partition(":")
            department, _, family = place.partition("/")
            traits = tuple(named.split())
        else:
            types.append(_product_type(line, department, family, traits))
    return tuple(types)


def _product_type(line: str, department: str, family: str, traits: tuple[str, ...]) -> ProductType:
    names, materials, sizes, audiences, price, *main = (column.strip() for column in line.split("|"))
    lowest, _, highest = price.partition("-")
    return ProductType(
        names=tuple(name.strip() for name in names.split(",")),
        department=department,
        family=f"{department}/{family}",
        traits=traits,
        materials=_listed(materials),
        sizes=None if sizes == "-" else sizes,
        audiences=_listed(audiences),
        price=(float(lowest), float(highest)),
        accessory_of=main[0] if main else None,
    )


def _listed(column: str) -> tuple[str, ...]:
    return () if column == "-" else tuple(column.split())
