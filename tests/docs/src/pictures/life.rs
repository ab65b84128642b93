//! The states of a lock, and what leads from one to the other.

use super::svg::{Anchor::Middle, Svg};

pub fn draw() -> Svg {
    let mut svg = Svg::new(820, 392, "The life of a lock: free, held, over");
    boxes(&mut svg);
    arrows(&mut svg);
    svg
}

fn boxes(svg: &mut Svg) {
    svg.rect("box", [40, 138, 130, 84], 12);
    svg.text("bold", Middle, [105, 175], "free");
    svg.text("small soft", Middle, [105, 198], "there is no key");

    svg.rect("box", [310, 118, 200, 124], 12);
    svg.pill("alice", [330, 134, 160, 34], "held by alice");
    svg.text("", Middle, [410, 195], "fence 7");
    svg.text("small soft", Middle, [410, 222], "the lease runs");

    svg.rect("box", [656, 138, 124, 84], 12);
    svg.text("bold", Middle, [718, 175], "over");
    svg.text("small soft", Middle, [718, 198], "who is next?");
}

fn arrows(svg: &mut Svg) {
    svg.path("arrow", "M170 180 H308");
    svg.text("bold", Middle, [238, 170], "ACQUIRE");

    svg.path("arrow", "M510 180 H654");
    svg.text("bold", Middle, [582, 128], "last RELEASE");
    svg.text("small", Middle, [582, 148], "or the lease ends");
    svg.text("small", Middle, [582, 167], "or an administrator");

    // The next waiter: over the top.
    svg.path("arrow", "M718 138 V84 Q718 68 702 68 H426 Q410 68 410 84 V116");
    svg.text("", Middle, [564, 36], "somebody waits: the first one holds it");
    svg.text("small soft", Middle, [564, 56], "in the same step, with fence 8");

    // A holder that goes on.
    svg.path("arrow", "M366 242 C350 296 470 296 454 244");
    svg.text(
        "small",
        Middle,
        [410, 304],
        "ACQUIRE again, EXTEND: the same fence",
    );

    // Nobody: along the bottom.
    svg.path(
        "arrow",
        "M718 222 V326 Q718 342 702 342 H121 Q105 342 105 326 V224",
    );
    svg.text("", Middle, [410, 334], "nobody waits");
    svg.text(
        "small soft",
        Middle,
        [410, 368],
        "What is over stays over: EXTEND answers NOTHELD, NOTOWNER or STALE",
    );
}
