"""An invented corpus for named-entity tagging: sentences from a small grammar, labelled in IOB2."""

import hashlib
from functools import lru_cache

from lengthwise.downstream.conll import TaggedSentence, TaggedSentences

SENTENCES = 1400  # as many as the corpus of the published measurement has
TYPES = ("PER", "LOC", "ORG")  # rules whose words are an entity of this type

# A rule is a name in capitals and its alternatives. A word that is the name of a rule stands for one of its
# alternatives. The words of FIRST begin names of every type, and nothing before or in them shows the type.
GRAMMAR = """
SENTENCE = OPENING , CLAUSE . | OPENING , CLAUSE LINK CLAUSE . | OPENING , CLAUSE , CLAUSE . | CLAUSE .
SENTENCE = CLAUSE LINK CLAUSE . | CLAUSE LINK CLAUSE , CLAUSE . | OPENING , CLAUSE .
OPENING = on WEEKDAY PART | in MONTH NUMBER | after NUMBER ADJECTIVE NOUN | for the ADJECTIVE NOUN
OPENING = with NUMBER NOUN left | before the NOUN of MONTH | NUMBER weeks after the NOUN
CLAUSE = the ADJECTIVE ROLE from NAME told NAME about NUMBER NOUN | a ADJECTIVE NOUN of NUMBER pages reached NAME
CLAUSE = NUMBER ADJECTIVE NOUN were sent to NAME by the ROLE of NAME | the ROLE and the ADJECTIVE ROLE visited NAME
CLAUSE = every ADJECTIVE ROLE knows that NAME wrote to NAME | the ADJECTIVE NOUN about NAME surprised the ROLE
LINK = while | because | although | and | but | until
NAME = PER | LOC | ORG
PER = FIRST | FIRST SURNAME | GIVEN SURNAME
LOC = FIRST | FIRST LANDFORM | CITY
ORG = FIRST | FIRST KIND | COMPANY KIND
FIRST = Adelaide | Austin | Beverly | Bristol | Camden | Carolina | Charlotte | Chelsea | Clinton | Dallas | Denver
FIRST = Devon | Douglas | Eugene | Florence | Franklin | Georgia | Hamilton | Houston | Hudson | Jackson | Jordan
FIRST = Kent | Kingston | Lancaster | Lincoln | Logan | Madison | Marion | Milan | Monroe | Orlando | Paris | Preston
FIRST = Raleigh | Regina | Salem | Santiago | Savannah | Shannon | Stanley | Sydney | Trent | Vernon | Victoria
FIRST = Warwick | Wesley | Winston
GIVEN = Anna | Bruno | Clara | David | Elena | Felix | Greta | Henrik | Irene | Jonas | Katrin | Lukas | Maria | Nils
GIVEN = Olga | Peter
SURNAME = Dubois | Haddad | Ibrahim | Jansen | Kovacs | Larsen | Meyer | Moreau | Nakamura | Novak | Okafor | Petrov
SURNAME = Ramos | Rossi | Schmidt | Silva | Takeda | Vargas | Weber | Quinn
CITY = Accra | Bergen | Berlin | Dublin | Ghent | Graz | Hanoi | Krakow | Lima | Lisbon | Lyon | Nairobi | Osaka | Oslo
CITY = Quito | Tunis
COMPANY = Altavia | Brightwater | Corvex | Deltora | Everlight | Fernhill | Gravitas | Helixa | Ironbridge | Northwind
LANDFORM = Bay | Hills | Island | River | Valley
KIND = Airlines | Bank | Group | Industries | University
WEEKDAY = Monday | Tuesday | Wednesday | Thursday | Friday | Saturday | Sunday
PART = morning | afternoon | evening | night
MONTH = January | February | March | April | May | June | July | August | September | October | November | December
NUMBER = two | three | four | five | six | seven | eight | nine | ten | eleven | twelve | twenty | thirty | forty
NUMBER = fifty | sixty
ADJECTIVE = brief | careful | early | famous | final | former | gentle | heavy | honest | large | local | modern | new
ADJECTIVE = old | patient | quiet | rare | recent | secret | serious | simple | small | strange | young
NOUN = books | boxes | contracts | debates | drawings | experiments | journeys | lectures | letters | maps | meetings
NOUN = orders | paintings | plans | questions | reports | songs | stories | tables | theories | trials | votes
NOUN = warnings | words
ROLE = actor | architect | baker | captain | chemist | dancer | doctor | driver | editor | farmer | gardener | judge
ROLE = lawyer | mayor | painter | pilot | poet | printer | sailor | singer | surgeon | tailor | teacher | writer
"""


def rules() -> dict[str, list[list[str]]]:
    """Return the alternatives of each rule as lists of words."""
    alternatives_by_name: dict[str, list[list[str]]] = {}
    for line in GRAMMAR.strip().splitlines():
        name, _, alternatives = line.partition(" = ")
        alternatives_by_name.setdefault(name, []).extend(
            alternative.split() for alternative in alternatives.split(" | ")
        )
    return alternatives_by_name


@lru_cache(maxsize=4)
def invented_sentences(seed: int, count: int) -> TaggedSentences:
    """Return the first `count` sentences of the corpus with this seed.

    The n-th sentence (from 0) expands SENTENCE from left to right. Its d-th choice (from 0) among m alternatives is
    number r mod m, where r has the first 8 bytes of the SHA-256 of the text "seed n d", as a big-endian number.
    """
    alternatives = rules()
    return TaggedSentences(tuple(_Sentence(alternatives, f"{seed} {n}").tagged() for n in range(count)))


class _Sentence:
    def __init__(self, alternatives: dict[str, list[list[str]]], name: str):
        self.alternatives, self.name, self.choices = alternatives, name, 0

    def tagged(self) -> TaggedSentence:
        pairs = self.expand("SENTENCE")
        return TaggedSentence(tuple(word for word, _ in pairs), tuple(label for _, label in pairs))

    def expand(self, symbol: str) -> list[tuple[str, str]]:
        """Return the words of a symbol with their labels."""
        if symbol not in self.alternatives:
            return [(symbol, "O")]
        options = self.alternatives[symbol]
        digest = hashlib.sha256(f"{self.name} {self.choices}".encode()).digest()
        self.choices += 1
        pairs = [
            pair for word in options[int.from_bytes(digest[:8], "big") % len(options)] for pair in self.expand(word)
        ]
        if symbol not in TYPES:
            return pairs
        return [(word, f"{'I' if n else 'B'}-{symbol}") for n, (word, _) in enumerate(pairs)]
