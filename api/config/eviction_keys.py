"""The keys of ``cache.eviction``: what leaves a tier, and when."""

from viewcache.api.config.kinds import Key, KeySection

__all__ = ["EVICTION"]

EVICTION = KeySection(
    "eviction",
    "cache.eviction",
    "What leaves a tier, and when.",
    (
        Key(
            "policy",
            "name",
            "Name of the policy that says what leaves first: a shipped one, or a file `NAME.sql` of `folder`.",
            "demand",
        ),
        Key("folder", "url", "Local folder of policies of your own, one SELECT in each `.sql` file.", None, "none"),
        Key(
            "high_water",
            "number",
            "Share of a tier's budget above which making ahead gives up what is needed later.",
            0.95,
            least=0.05,
            most=1.0,
        ),
        Key("low_water", "number", "Share of the budget down to which it does.", 0.9, least=0.05, most=1.0),
        Key(
            "trim",
            "flag",
            "Whether clips of generations that are over leave while training goes on, though there is room. `false` "
            "keeps them until room is short, for a training that begins again from its first epoch.",
            True,
        ),
    ),
)
