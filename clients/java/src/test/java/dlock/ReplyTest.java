package dlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.lettuce.core.protocol.RedisStateMachine;
import io.netty.buffer.Unpooled;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

class ReplyTest {
    @Test
    void nested_lists_are_read_as_they_are_sent() {
        List<Object> answer = List.of("granted", "k", 7L);
        assertEquals(List.of(5L, 0L, List.of(answer, List.of())), read("*3\r\n:5\r\n:0\r\n*2\r\n"
                + "*3\r\n$7\r\ngranted\r\n$1\r\nk\r\n:7\r\n*0\r\n"));
    }

    @Test
    void nothing_is_null_in_each_protocol() {
        assertNull(read("$-1\r\n"));
        assertNull(read("*-1\r\n"));
        assertNull(read("_\r\n"));
        assertEquals(Arrays.asList(1L, null, 2L), read("*3\r\n:1\r\n$-1\r\n:2\r\n"));
    }

    @Test
    void maps_are_lists_of_names_and_values() {
        assertEquals(List.of("a", List.of(1L, 2L), "b", 0.5), read("%2\r\n+a\r\n*2\r\n:1\r\n:2\r\n+b\r\n,0.5\r\n"));
    }

    @Test
    void error_in_a_list_is_a_part_of_it() {
        assertEquals(List.of("ERR no", 1L), read("*2\r\n-ERR no\r\n:1\r\n"));
    }

    private static Object read(String bytes) {
        Reply reply = new Reply();
        var buffer = Unpooled.copiedBuffer(bytes, StandardCharsets.UTF_8);
        new RedisStateMachine().decode(buffer, reply);
        assertEquals(0, buffer.readableBytes());
        return Words.readable(reply.get());
    }
}
