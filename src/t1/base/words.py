"""Words and names that the corpus is made of.

One rule keeps the corpus apart from every task: a task names its files with one plain word and a common extension
(`plan.txt`, `box/`), and the corpus never does. Its names have a made-up stem (`tavel`, `redfox`, `oak7`), or a plain
stem with an extension of `RARE_EXTENSIONS`; its directories are always made-up. So no command that names a file can
occur in both. This module knows nothing of tasks.
"""

from __future__ import annotations

from random import Random


def listed(text: str, separator: str | None = None) -> tuple[str, ...]:
    """The parts of a text, as a word list is pleasant to read and to edit."""
    return tuple(text.split(separator))


# Common ones first: `word` draws the first `_CORE` more often, so that the tokenizer spends its merges on them.
_COMMON = listed("""
oak fox sun red map box key cup hat pen owl bee ant cat dog cow hen pig rat bat ram elk eel cod jay fig pea nut oat
rye ice sea sky bay dew fog mud ash ink tin zinc iron gold silver copper lead clay sand rock stone hill lake pond pool
river brook creek field forest wood tree leaf root bark branch seed moss fern rose lily mint sage basil pine elm birch
maple cedar willow palm bamboo apple pear plum peach grape lemon lime melon berry cherry mango olive onion garlic
carrot bean corn rice wheat bread cake pie jam honey sugar salt pepper spice tea coffee milk butter cheese cream egg
meat fish soup stew bowl plate dish spoon fork knife glass jar jug pot pan lid tray table chair desk bed sofa lamp rug
shelf door window wall roof floor gate fence road path lane bridge tower castle house cabin barn shed tent camp farm
garden park yard market shop store school office bank mill mine port dock harbor ship boat raft canoe sail mast oar
anchor rope net hook nail bolt screw hammer saw drill axe file rake hoe shovel spade bucket broom brush mop soap towel
cloth silk wool cotton linen thread needle button coat shirt scarf glove boot shoe sock belt ring crown coin gem pearl
ruby amber jade opal star moon comet planet cloud rain snow wind storm frost flame fire smoke spark light shadow dawn
dusk noon night day week month year spring summer autumn winter east west north south left right top bottom front back
side edge corner center circle square line curve wave point spot dot cross arrow sign mark note page book paper letter
word name number list table row column card deck game ball bat drum flute horn harp piano violin bell song dance music
paint color blue green yellow orange purple pink brown black white gray violet teal coral ivory tiger lion bear wolf
deer moose horse pony goat sheep lamb camel zebra panda koala monkey mouse rabbit otter beaver seal whale shark crab
clam snail worm frog toad snake lizard turtle eagle hawk crow raven robin swan duck goose crane stork heron parrot
finch dove wren plan data text code log test task step goal idea rule part item unit size type kind form shape copy
draft report memo mail news story poem menu recipe budget order bill price cost total sum count rate score level grade
class group team crew club king queen prince knight guard baker farmer sailor miner pilot doctor nurse teacher artist
writer singer
""")

_MORE = listed("""
able about above across act add after again age agree ahead aim air alarm alert alike alive alley allow alone along
aloud also alter always angle angry animal ankle answer any apart arch area arm army aside ask atlas attic aunt avoid
awake award aware away awful baby badge bag bake balance bare base basin basket bath bead beak beam beard beat beauty
become before begin behind being below bench bend beside best better between beyond big bind bird bite bitter blade
blank blanket blend bless blind block bloom blow board body boil bold bone bonus border born borrow both bottle boss
brain brake brass brave break breath breeze brick brief bright bring broad broken broth build bulb bull bundle burn
burst bus bush busy buy cable cage calf call calm candle canvas cap cape cargo carpet carry cart carve case cast catch
cause cave cell chain chalk chance change charm chart chase cheap check cheer chest chief child chill chin choice
choose chop chorus city claim clap claw clean clear clever cliff climb clock close clover coach coal coast cocoa cold
collar comb come comfort cook cool core cork cost couch could cousin cover cozy crack craft crash crate crawl crayon
creep crew crisp crop crowd crumb crush cry cube curl current cushion custom cut cycle daily dairy dare dark dart dash
date deal dear decide deep delay den depth desert detail dig dim diner dinner dip dirt dive divide done double down
dozen drag drain draw dream dress drift drink drive drop dry dull dune dust duty each eager ear early earn earth ease
easy eat echo effort eight either elbow elder else empty end enjoy enough enter equal even event ever every exact
example extra eye fable face fact fade fair fall false family fan far fast father favor fear feast feather feed feel
feet fell fence few fiber fifty fight fill final find fine finger finish firm first fit five fix flag flat flavor
fleet flight float flock flood flour flow flower fluid fly foam fold folk follow food foot force forget fossil found
four frame free fresh friend fruit fuel full fun funny fur future gain gallon gap gather gentle gift giant ginger girl
give glad glide globe glow glue go good grain grand grant grass gravel great greet grid grin grip ground grove grow
guess guest guide guitar gulf gull habit hair half hall hand handle hang happy hard harvest haste hatch have hay hazel
head heal heap hear heart heat heavy hedge heel height help herb herd here hero hidden high hike hint hip hive hobby
hold hole hollow home honest hood hope host hot hotel hour huge hum human humble hundred hunt hurry hut inch inner
insect inside island jacket jelly jewel join joke journey joy juice jump jungle junior just keen keep kettle kick kid
kind kit kitchen kite kitten knee knot know label ladder lady lake land lantern large last late laugh laundry law lawn
layer lazy leap learn leather leave ledge leg legend lemonade lend length lens less lesson let lever library lid lift
like limb limit link lip liquid listen little live load loaf local lock lodge loft long look loom loop loose lost loud
love low loyal luck lucky lunch magic magnet main make many marble march margin market marsh mask match mate matter
maybe meadow meal mean measure medal meet mellow melt member mend merry metal meter middle might mild mile mind minor
minute mirror miss mist mix model modest moment money more morning mortar most mother motor mountain mouth move much
muffin mug muscle museum must myself myth napkin narrow nation native nature near neat neck neighbor nest never new
next nice nickel nine noble noise none nook noodle normal nose notice novel now oasis object ocean odd offer often oil
old once one only open orchard other ounce outer oven over own oxygen pace pack paddle pail pair palace pale panel
parade parcel parent parlor party pass past pasta pastry patch patient pause pave paw pay peace peak pebble pedal peel
people perfect pet petal phone photo phrase pick picnic picture piece pillow pinch pipe pitch place plain plant
plastic play plaza please plenty plow plus pocket poet pole polish polite poor poppy porch portal pose post potato
pouch pound pour powder power praise press pretty prize proof proud prove public puddle pull pulse pump pumpkin punch
pupil puppy pure purse push puzzle quail quart quick quiet quilt quite race rack radio rag rail raise raisin ranch
range rapid rare raw reach read ready real reason rebel record reed reef relax remain rest return reward rhyme ribbon
rich ride ridge rim ripe rise roam roar roast robe rocket rod roll room rough round route royal rub rubber run rural
rush rust sack sad saddle safe saga salad salmon same sample satin sauce save scale scene scent scout scrap sea search
seat second secret see seem self sell send sense serve seven shade shake shall share sharp shell shelter shine shirt
shore short should shout show shrub shut shy sick sight signal silent silly simple since sing sip sister site six
skate sketch ski skill skin skip slate sled sleep slice slide slim slope slow small smart smell smile smooth snack
snap soak soft soil solar sold solid solve some son soon sort soul sound sour source space spare speak speed spell
spend sphere spin spirit splash split sport spread squash squirrel stack staff stage stair stamp stand staple start
state station stay steady steam steel steep stem stick still stir stock stool stop strap straw stream street string
strip strong studio sturdy style such sudden suit sunny sunset super supper sure surf surprise swamp sweet swift swim
swing switch symbol syrup tail take tale talk tall tame tan tank tap tape target tart taste teach tear tell ten tender
term than thank theme then there thick thin thing think third thirty this thorn those three throw thumb thunder ticket
tide tidy tie tight tile timber time tiny tip tired title toast today toe together tomato tone tonight tool tooth
topic torch toss touch tough tour town toy trace track trade trail train travel treat trend trial tribe trick trim
trip truck true trunk trust try tub tube tulip tune tunnel turn twelve twenty twig twin twist two umbrella uncle under
unique until up upon upper urban use useful usual vacant valley value van vapor vase vast velvet verb verse vest view
village vine vinegar visit vivid voice vote voyage wade wagon wait wake walk walnut wander want warm warn wash watch
water wax way wealth wear weave wedge weed weigh well wet what wheel when where which while whisper whistle whole why
wide wild will win wing wipe wire wise wish with wonder wooden work world worth would wrap wreath wrist write yarn
yeast yell yes yet yield yoga young youth zero zest zone zoo
""")

WORDS = tuple(dict.fromkeys(_COMMON + _MORE))
_CORE = len(dict.fromkeys(_COMMON))

CORE_WORDS = WORDS[:_CORE]
"""The words that occur most."""

GLUED_WORDS = listed("""
the a an of in on at to and or is was are it its that this with from by for as be not no into has have had but so then
all each every one two file files line lines word words name directory first last
""")
"""Words of grammar: the tokenizer keeps them in one piece with the space before them. They are never names."""

VERBS = listed("""
write make copy move delete remove rename append add put create replace sort count join list find show print save store
keep take change link pack read give set use turn reverse extract named called
""")
"""Words that instructions anywhere are made of, for the tokenizer's vocabulary only: no sentence here uses them so."""

EXTENSIONS = ("txt", "csv", "log", "md", "sh", "conf", "json", "list", "out")
RARE_EXTENSIONS = ("dat", "ini", "yml", "rst", "bak", "tex", "html", "py", "old", "tsv")

_ONSETS = listed("b d f g h j k l m n p r s t v w z br dr kl pl st tr fl gr sh ch")
_VOWELS = listed("a e i o u ai ee ou")
_CODAS = ["", "", "n", "l", "r", "s", "t", "x", "m", "k", "nd", "rt"]


def word(rng: Random) -> str:
    """A common English word."""
    return WORDS[int(rng.random() * (_CORE if rng.random() < 0.7 else len(WORDS)))]


def words(rng: Random, count: int) -> list[str]:
    """`count` words, repetition possible."""
    return [word(rng) for _ in range(count)]


def pseudo_word(rng: Random) -> str:
    """A word that means nothing, such as `tavel`."""
    syllables = 2 if rng.random() < 0.8 else 1
    body = "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(syllables))
    return body + rng.choice(_CODAS) + ("" if syllables == 2 else rng.choice("aeiou") + rng.choice("nlrst"))


def made_up(rng: Random) -> str:
    """A stem that is not one plain word."""
    kind = rng.random()
    if kind < 0.3:
        name = f"{word(rng)}{rng.choice(('', '', '-', '_'))}{word(rng)}"
    elif kind < 0.65:
        name = f"{word(rng)}{rng.choice(('', '', '-', '_'))}{rng.randint(1, 99)}"
    else:
        name = pseudo_word(rng)
    return f"{name}{rng.randint(0, 9)}" if name in _KNOWN else name


def file_name(rng: Random, extension: str = "") -> str:
    """A file name; `extension` fixes what follows the dot."""
    if not extension and rng.random() < 0.4:
        return f"{word(rng)}.{rng.choice(RARE_EXTENSIONS)}"
    return f"{made_up(rng)}.{extension or rng.choice(EXTENSIONS)}"


_KNOWN = frozenset(WORDS)
