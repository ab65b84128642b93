package dlock;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.codec.ByteArrayCodec;
import java.util.List;
import java.util.concurrent.RejectedExecutionException;
import org.jspecify.annotations.Nullable;

/** What locks need of the program's client. Without a cluster, there is one server, whose address is empty. */
interface Client {
    /** The client itself: all {@link Locks} on it share their connections. */
    AbstractRedisClient source();

    /** Opens a connection to the primary, or to the node of a cluster at this address. Blocks. */
    Connection connect(String address);

    default boolean isCluster() {
        return false;
    }

    /** Lettuce may wait without end for a connection of a client that was shut down. */
    default void check() {
        if (source().getResources().eventExecutorGroup().isShuttingDown()) {
            throw new RejectedExecutionException("the client was shut down");
        }
    }

    /** Finds out which nodes a cluster has, unless that is known. Blocks. */
    default void prepare() {}

    /** The addresses of the nodes of a cluster, as far as the client knows. */
    default List<String> nodes() {
        return List.of();
    }

    /** The address of a slot's primary, as far as the client knows. */
    default @Nullable String primary(int slot) {
        return null;
    }

    /** A client of one server, which may have a replica and be watched by Sentinels. */
    record OfServer(RedisClient source) implements Client {
        @Override
        public Connection connect(String address) {
            return new Connection(source.connect(ByteArrayCodec.INSTANCE));
        }
    }

    /**
     * A client of a cluster.
     *
     * @param single connects to one of its nodes, with the settings of the client
     */
    record OfCluster(RedisClusterClient source, RedisClient single) implements Client {
        OfCluster(RedisClusterClient source) {
            this(source, RedisClient.create(source.getResources()));
            single.setOptions(source.getOptions().mutate().autoReconnect(false).build());
        }

        @Override
        public Connection connect(String address) {
            int colon = address.lastIndexOf(':');
            // All nodes have the same users and certificates.
            RedisURI.Builder uri = RedisURI.builder(source.getPartitions().getPartition(0).getUri());
            uri.withHost(address.substring(0, colon)).withPort(Integer.parseInt(address.substring(colon + 1)));
            return new Connection(single.connect(ByteArrayCodec.INSTANCE, uri.build()));
        }

        @Override
        public boolean isCluster() {
            return true;
        }

        @Override
        public void prepare() {
            source.getPartitions();
        }

        @Override
        public List<String> nodes() {
            return source.getPartitions().getPartitions().stream().map(OfCluster::address).toList();
        }

        @Override
        public @Nullable String primary(int slot) {
            RedisClusterNode node = source.getPartitions().getMasterBySlot(slot);
            return node == null ? null : address(node);
        }

        private static String address(RedisClusterNode node) {
            return node.getUri().getHost() + ":" + node.getUri().getPort();
        }
    }
}
