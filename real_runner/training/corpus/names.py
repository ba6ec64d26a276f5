"""Word lists shared by the templated domains."""

PEOPLE = (
    "Ada Alan Amir Anna Ben Bella Boris Carl Cara Chen Clara Dan Dana David Ella Emil Emma "
    "Eric Eva Farid Fiona Frank Gina Grace Hana Hugo Ida Ivan Jack Jane Joel Julia Karl Kate "
    "Kira Lars Laura Leo Lily Lucas Maria Mark Maya Mila Nadia Nina Noah Nora Omar Oscar Paul "
    "Petra Quinn Rosa Ruth Sam Sara Simon Sofia Tara Tom Uma Victor Wendy Yusuf Zoe"
).split()

SURNAMES = (
    "Adams Baker Bell Berg Brown Carter Clark Cole Cook Costa Diaz Evans Fischer Ford Garcia "
    "Grant Gray Hall Hill Hughes Hunt Khan King Kim Lane Lee Lopez Marsh Mason Meyer Moore "
    "Novak Park Patel Price Reed Rossi Shaw Silva Stone Tanaka Ward Weber Wood Young"
).split()

PLACES = (
    "Athens Austin Bergen Berlin Bern Boston Bristol Cairo Calgary Cardiff Chicago Cork Dallas "
    "Delhi Denver Dublin Geneva Genoa Ghent Hamburg Helsinki Kyoto Leeds Leipzig Lima Lisbon "
    "London Lyon Madrid Malmo Milan Munich Nairobi Naples Oslo Oxford Paris Porto Prague Quito "
    "Riga Rome Seattle Seoul Seville Sydney Tokyo Toronto Turin Vienna Warsaw York Zurich"
).split()

# Products grouped by class; the class decides the wording of some replies.
PRODUCTS_BY_CLASS = {
    "kitchen": (
        "kettle|toaster|blender|mixer|coffee maker|pan set|knife set|rice cooker|juicer|"
        "oven dish|teapot"
    ).split("|"),
    "electronics": (
        "laptop|phone|tablet|camera|printer|router|monitor|keyboard|speaker|headset|"
        "smart watch|charger"
    ).split("|"),
    "clothing": (
        "jacket|raincoat|sweater|scarf|hat|shirt|dress|belt|wool coat|pair of boots|pair of gloves"
    ).split("|"),
    "furniture": "desk|chair|lamp|bookcase|sofa|mirror|bed frame|cabinet|stool|coffee table|rug".split(
        "|"
    ),
}
PRODUCTS = [name for group in PRODUCTS_BY_CLASS.values() for name in group]

MONTHS = (
    "January February March April May June July August September October November December"
).split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
