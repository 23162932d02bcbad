"""Phrases that make technical English hard to read, with a sample of each group and what to write instead.

A group is (name, advice, pattern, sample). `check.py` runs the patterns over prose, and its self-test runs them over the samples.
"""
import re

_GROUPS = [
    (
        "told",
        "name the action: return, report, log, send, configure",
        r"\btold\b|\btells? (?:of|apart|that|why|how|which|what|whom|them|nothing|each|all|an?|its|by|more|people|clients?|operators)\b"
        r"|\bhears\b|\bheard\b",
        "the client is told the wait",
    ),
    (
        "pronoun",
        "name the actor: the client, the gateway, the store",
        r"\bwho(?:m|so)?ever\b|\bwhom\b|\b(?:no|some|any|every)body\b|\bthose (?:who|of)\b|\b(?:that|the same) of (?:an?|the|one|all|its)\b",
        "nobody waits twice",
    ),
    (
        "whatever",
        "name the thing, or use if and when",
        r"\bwhatever (?:an?|the|it|they|is|are|was|comes|came|has|had|becomes|happens|else|goes|follow)",
        "whatever the upstream sends",
    ),
    (
        "who",
        "make the actor the subject, the condition an if-clause",
        r"(?:^|[.;:] )(?-i:Who) (?!.*\?)|(?:, |; |: |and |for |of |by |one |but )who (?:is|has|had|was|may|can|does|asks|comes|waits"
        r"|shares|cannot|leaves|knows|reads|sends?|sent)\b",
        "Who waits is not charged.",
    ),
    (
        "what",
        "use a noun instead of a clause",
        r"(?:^|[.;:] )(?-i:What) (?!is (?:the|a) )(?!.*\?)[a-z]|(?<!regardless )\b(?:of|by|with|under) what\b",
        "What comes next is discarded.",
    ),
    (
        "none",
        "repeat the noun, or write no or not",
        r"(?-i:\b(?:is|are|was|were) none\b)|; (?:nothing|none) (?:if|where|of|at|is|in|for|until|but)\b|\bthat (?:is|are) no\b(?! longer)",
        "an address that is no address",
    ),
    (
        "question",
        "`Returns true if ...`",
        r"^(?-i:Is|Does|Do|Has|Have|May|Must) (?!not\b).*\?$",
        "Is the store reachable?",
    ),
    (
        "so many",
        "give the number, or write `at most N`",
        r"\bso (?:many|much|long|few)\b(?! as| that)|\bas far as (?:is|are|that|it|they|there|known)\b",
        "so many bytes are read",
    ),
    (
        "over",
        "use ended, expired, unreachable, has arrived",
        r"\b(?:is|are|was|were) (?:over\b(?! (?:TLS|H2|HTTP|the|an?|its)\b)|away\b)|\b(?:has|have|had) come\b(?! (?:across|back))",
        "the store is away",
    ),
    (
        "verb",
        "use the term of the field: use, check, reset, continue",
        r"\bspoken\b|\bheld against\b|\blook(?:s|ed|ing)? after\b|\bwarned of\b|\blet go\b|\bvanish|\b(?:go|goes|went) on\b"
        r"|\basked for\b|\bcom(?:es?|ing) (?:behind|beside)\b|\bis (?:it|they) (?:who|that)\b|\b(?:have|has|had|its|their|whose) turn\b",
        "the request goes on",
    ),
    (
        "word",
        "use again, in addition, in the meantime, own",
        r"\bbeside\b|\banew\b|\bmeanwhile\b|\bin vain\b|\bkin\b|\bfrom (?:now|then) on\b|\bof (?:ours|late)\b|\bby then\b"
        r"|\bof (?:his|their|its|one's) own\b|\bfor want of\b|\ball the same\b|\b(?:a word of|without a word|in the words of)\b",
        "it is read anew",
    ),
]

GROUPS = [(name, advice, re.compile(pattern, re.IGNORECASE), sample) for name, advice, pattern, sample in _GROUPS]
