package dlock;

import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.CommandOutput;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** What Lettuce reads: a long, a double, a boolean, bytes, null, or a list of these. A map is a list, too. */
final class Reply extends CommandOutput<byte[], byte[], @Nullable Object> {
    /** The lists that are not complete. */
    private final Deque<Unfinished> unfinished = new ArrayDeque<>();

    private record Unfinished(List<@Nullable Object> items, int size) {
        boolean isFull() {
            return items.size() >= size;
        }
    }

    Reply() {
        super(ByteArrayCodec.INSTANCE, null);
    }

    @Override
    public void set(@Nullable ByteBuffer bytes) {
        if (bytes == null) {
            put(null);
            return;
        }
        byte[] raw = new byte[bytes.remaining()];
        bytes.get(raw);
        put(raw);
    }

    @Override
    public void set(long number) {
        put(number);
    }

    @Override
    public void set(double number) {
        put(number);
    }

    @Override
    public void set(boolean value) {
        put(value);
    }

    @Override
    public void setError(ByteBuffer error) {
        if (unfinished.isEmpty()) {
            super.setError(error);
        } else {
            set(error);
        }
    }

    @Override
    public void multi(int size) {
        if (size < 0) {
            put(null);
            return;
        }
        List<@Nullable Object> items = new ArrayList<>(size);
        add(items);
        unfinished.push(new Unfinished(items, size));
        finish();
    }

    private void put(@Nullable Object value) {
        add(value);
        finish();
    }

    private void add(@Nullable Object value) {
        Unfinished list = unfinished.peek();
        if (list == null) {
            output = value;
        } else {
            list.items.add(value);
        }
    }

    private void finish() {
        while (!unfinished.isEmpty() && unfinished.element().isFull()) {
            unfinished.pop();
        }
    }
}
