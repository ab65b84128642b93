import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.UUID;
import java.util.stream.IntStream;

/** ByHand PORT LOCKS ROUNDS: prints in how many ms Lettuce alone sends that many DLOCK.ACQUIREs in the last round, all at once. */
public final class ByHand {
    enum Command implements ProtocolKeyword {
        ACQUIRE;

        @Override
        public byte[] getBytes() {
            return "DLOCK.ACQUIRE".getBytes(StandardCharsets.US_ASCII);
        }
    }

    public static void main(String[] args) {
        var client = RedisClient.create("redis://127.0.0.1:" + args[0]);
        var redis = client.connect().async();
        var names = IntStream.range(0, Integer.parseInt(args[1])).mapToObj(n -> "by-hand:" + n).toList();
        long took = 0;
        for (int round = 0; round < Integer.parseInt(args[2]); round++) {
            long began = System.nanoTime();
            acquire(redis, names);
            took = System.nanoTime() - began;
            redis.del(names.toArray(String[]::new)).toCompletableFuture().join();
        }
        System.out.println(took / 1e6);
        client.shutdown();
    }

    private static void acquire(RedisAsyncCommands<String, String> redis, List<String> names) {
        List<RedisFuture<List<Object>>> replies = names.stream().map(name -> {
            String owner = "by-hand:" + UUID.randomUUID();
            var words = new CommandArgs<>(StringCodec.UTF8).addKey(name).add(owner).add(30_000).add("REQID").add(owner);
            return redis.dispatch(Command.ACQUIRE, new NestedMultiOutput<>(StringCodec.UTF8), words);
        }).toList();
        replies.forEach(reply -> reply.toCompletableFuture().join());
    }
}
