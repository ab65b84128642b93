//! What clients read: grants and answers, as replies.

use dlock_core::{Answer, Answered, Granted, GrantsReply};

use crate::redis::Ctx;

/// `[fence, holds, lease-ms, waited-ms]`
pub fn reply_grant(ctx: &Ctx<'_>, granted: &Granted) {
    ctx.reply_array(4);
    for number in [granted.fence, granted.holds, granted.lease_ms, granted.waited_ms] {
        ctx.reply_integer(number);
    }
}

/// `[cursor, waited-ms, [answer ...]]`
pub fn reply_grants(ctx: &Ctx<'_>, reply: &GrantsReply) {
    ctx.reply_array(3);
    ctx.reply_integer(reply.cursor);
    ctx.reply_integer(reply.waited_ms);
    ctx.reply_array(reply.answers.len());
    for answered in &reply.answers {
        match &answered.answer {
            Answer::Granted(granted) => {
                reply_answered(ctx, b"granted", answered, 4);
                for number in [granted.fence, granted.holds, granted.lease_ms, granted.waited_ms] {
                    ctx.reply_integer(number);
                }
            }
            Answer::Extended(lease_ms) => {
                reply_answered(ctx, b"extended", answered, 1);
                ctx.reply_integer(*lease_ms);
            }
            Answer::TimedOut => reply_answered(ctx, b"timeout", answered, 0),
            Answer::Withdrawn => reply_answered(ctx, b"withdrawn", answered, 0),
            Answer::Rejected(error) => reply_answered_error(ctx, answered, &error.to_string()),
            Answer::Elsewhere(error) => reply_answered_error(ctx, answered, error),
        }
    }
}

/// A string: an error inside of an array breaks client libraries.
fn reply_answered_error(ctx: &Ctx<'_>, answered: &Answered, error: &str) {
    reply_answered(ctx, b"error", answered, 1);
    ctx.reply_bytes(error.as_bytes());
}

/// `kind id key owner`, and `more` that follow.
fn reply_answered(ctx: &Ctx<'_>, kind: &[u8], answered: &Answered, more: usize) {
    ctx.reply_array(more.saturating_add(4));
    ctx.reply_bytes(kind);
    ctx.reply_bytes(answered.request_id.as_deref().unwrap_or_default());
    ctx.reply_bytes(&answered.name.key);
    ctx.reply_bytes(&answered.owner);
}

/// The reply to a client that was blocked.
pub fn reply_answer(ctx: &Ctx<'_>, answer: &Answer) {
    match answer {
        Answer::Granted(granted) => reply_grant(ctx, granted),
        Answer::Extended(lease_ms) => ctx.reply_integer(*lease_ms),
        Answer::TimedOut | Answer::Withdrawn => ctx.reply_null_array(),
        Answer::Rejected(error) => ctx.reply_error(&error.to_string()),
        Answer::Elsewhere(error) => ctx.reply_error(error),
    }
}
