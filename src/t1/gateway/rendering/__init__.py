"""Messages to token ids and sampled ids to messages, through the checkpoint's own chat template.

`renderer_for(path)` is the way in. `spelling.py` keeps control tokens and text apart, `template.py` runs jinja,
`renderer.py` joins the two, `proof.py` says whether a template is append-only, `formats/` reads completions.
"""

from t1.gateway.rendering.checkpoint import renderer_for
from t1.gateway.rendering.families import FAMILIES, Family
from t1.gateway.rendering.proof import Proof
from t1.gateway.rendering.renderer import ChatTemplateRenderer

__all__ = ["FAMILIES", "ChatTemplateRenderer", "Family", "Proof", "renderer_for"]
