package dlock;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The words of commands and replies. */
final class Words {
    private Words() {}

    /** The words of a command: text, numbers and bytes. */
    static List<byte[]> of(Object... words) {
        List<byte[]> all = new ArrayList<>(words.length);
        for (Object word : words) {
            all.add(raw(word));
        }
        return all;
    }

    static byte[] raw(Object word) {
        if (word instanceof byte[] bytes) {
            return bytes;
        }
        if (word instanceof CharSequence || word instanceof Number) {
            return text(word.toString());
        }
        throw new IllegalArgumentException("a word is text, a number or a byte[], not " + word.getClass().getName());
    }

    /** Text in UTF-8. */
    static byte[] text(String text) {
        byte[] raw = text.getBytes(StandardCharsets.UTF_8);
        // Half of a surrogate pair is refused: all of them would become the same byte.
        if (!text(raw).equals(text)) {
            throw new IllegalArgumentException("text has half of a surrogate pair: " + text);
        }
        return raw;
    }

    static String text(byte[] raw) {
        return new String(raw, StandardCharsets.UTF_8);
    }

    /** The bytes of the name of a lock. */
    static byte[] key(byte[] key) {
        if (key.length == 0) {
            throw new IllegalArgumentException("the key is empty");
        }
        return key;
    }

    /** A reply with text in place of bytes. */
    static @Nullable Object readable(@Nullable Object reply) {
        if (reply instanceof byte[] bytes) {
            return text(bytes);
        }
        if (reply instanceof List<?> items) {
            List<@Nullable Object> all = new ArrayList<>(items.size());
            items.forEach(item -> all.add(readable(item)));
            return all;
        }
        return reply;
    }
}
