import java.io.File;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.activemq.artemis.api.core.*;
import org.apache.activemq.artemis.api.core.client.*;
import org.apache.activemq.artemis.core.config.*;
import org.apache.activemq.artemis.core.config.ha.*;
import org.apache.activemq.artemis.core.config.impl.*;
import org.apache.activemq.artemis.core.server.*;
import org.apache.activemq.artemis.core.server.impl.*;
import org.apache.curator.test.*;

/** Two brokers, three ZooKeeper servers and a client in one process: what was committed and is not in the journal of the broker that serves in the end. */
public class ReplicaLeavesFirst {
   static final String CLASS = "org.apache.activemq.artemis.lockmanager.zookeeper.CuratorDistributedLockManager";

   static DistributedLockManagerConfiguration manager(String connect, String settings) {
      Map<String, String> p = new HashMap<>(Map.of("connect-string", connect, "namespace", "x"));
      for (String s : settings.split(",")) p.put(s.split("=")[0], s.split("=")[1]);
      return new DistributedLockManagerConfiguration(CLASS, p);
   }

   static ActiveMQServerImpl broker(Path dir, String name, int port, int other, HAPolicyConfiguration policy) throws Exception {
      Configuration c = new ConfigurationImpl().setName(name).setSecurityEnabled(false).setPersistenceEnabled(true).setJournalType(JournalType.NIO).setJMXManagementEnabled(false)
         .setJournalFileSize(1 << 20).setJournalMinFiles(2).setHAPolicyConfiguration(policy)
         .addAcceptorConfiguration("a", "tcp://127.0.0.1:" + port).addConnectorConfiguration("self", "tcp://127.0.0.1:" + port).addConnectorConfiguration("other", "tcp://127.0.0.1:" + other)
         .setClusterUser("c").setClusterPassword("c")
         .addClusterConfiguration(new ClusterConnectionConfiguration().setName("cc").setConnectorName("self").setStaticConnectors(List.of("other")).setRetryInterval(200)
            .setConnectionTTL(4000).setClientFailureCheckPeriod(1000).setCallTimeout(5000));
      c.setBrokerInstance(dir.resolve(name).toFile());
      c.setJournalDirectory(dir.resolve(name) + "/journal").setBindingsDirectory(dir.resolve(name) + "/bindings").setPagingDirectory(dir.resolve(name) + "/paging").setLargeMessagesDirectory(dir.resolve(name) + "/large");
      c.addQueueConfiguration(QueueConfiguration.of("q").setRoutingType(RoutingType.ANYCAST));
      return new ActiveMQServerImpl(c);
   }

   static void until(String what, int seconds, Callable<Boolean> holds) throws Exception {
      long end = System.nanoTime() + seconds * 1_000_000_000L;
      while (!holds.call()) { if (System.nanoTime() > end) throw new IllegalStateException("not " + what); Thread.sleep(20); }
   }

   public static void main(String[] a) throws Exception {
      for (int i = 0; i < Integer.parseInt(a[2]); i++) {
         try { trial(a[0], a[1]); } catch (Exception e) { System.out.println("no result: " + e); }
      }
      System.exit(0);
   }

   static void trial(String primary, String backup) throws Exception {
      Path dir = Files.createTempDirectory("brokers");
      List<InstanceSpec> specs = new ArrayList<>();
      for (int i = 0; i < 3; i++) specs.add(new InstanceSpec(null, -1, -1, -1, true, -1, 500, 100));
      int one = InstanceSpec.getRandomPort(), two = InstanceSpec.getRandomPort();
      ActiveMQServerImpl first = null, second = null;
      try (TestingCluster zookeeper = new TestingCluster(specs)) {
         zookeeper.start();
         first = broker(dir, "first", one, two, ReplicationPrimaryPolicyConfiguration.withDefault().setDistributedManagerConfiguration(manager(zookeeper.getConnectString(), primary)));
         second = broker(dir, "second", two, one, ReplicationBackupPolicyConfiguration.withDefault().setDistributedManagerConfiguration(manager(zookeeper.getConnectString(), backup)));
         first.start();
         final ActiveMQServerImpl active = first, standby = second;
         until("active", 60, active::isActive);
         new Thread(() -> { try { standby.start(); } catch (Exception e) { } }).start();
         until("in sync", 90, () -> active.isReplicaSync());
         Set<String> acknowledged = ConcurrentHashMap.newKeySet(); AtomicBoolean stop = new AtomicBoolean(); AtomicLong last = new AtomicLong();
         ServerLocator locator = ActiveMQClient.createServerLocator("tcp://127.0.0.1:" + one + "?reconnectAttempts=0&callTimeout=10000");
         ClientSessionFactory factory = locator.createSessionFactory();
         Thread load = new Thread(() -> {
            try (ClientSession session = factory.createSession(false, false)) {
               ClientProducer producer = session.createProducer("q");
               for (int n = 0; !stop.get(); n += 10) {
                  List<String> ids = new ArrayList<>();
                  for (int k = n; k < n + 10; k++) { ClientMessage m = session.createMessage(true); m.putStringProperty("id", "" + k); m.getBodyBuffer().writeBytes(new byte[256]); producer.send(m); ids.add("" + k); }
                  session.commit();
                  acknowledged.addAll(ids); last.set(System.nanoTime());
                  Thread.sleep(40);
               }
            } catch (Exception e) { }
         });
         load.start(); Thread.sleep(2000);
         var instances = new ArrayList<>(specs); Collections.shuffle(instances);
         long t = System.nanoTime();
         for (int i = 0; i < 2; i++) zookeeper.killServer(instances.get(i));
         until("stopped", 90, () -> !active.isStarted());
         stop.set(true); load.join(15_000);
         for (int i = 0; i < 2; i++) zookeeper.restartServer(instances.get(i));
         until("active again", 90, standby::isActive);
         int found = 0;
         try (ServerLocator after = ActiveMQClient.createServerLocator("tcp://127.0.0.1:" + two); ClientSessionFactory f = after.createSessionFactory(); ClientSession s = f.createSession(true, true)) {
            s.start(); ClientConsumer consumer = s.createConsumer("q");
            for (ClientMessage m; (m = consumer.receive(2000)) != null; ) { m.acknowledge(); if (acknowledged.contains(m.getStringProperty("id"))) found++; }
         }
         System.out.printf("primary %s backup %s: acknowledged %d lost %d; last acknowledgement %d ms after the kill%n", primary, backup, acknowledged.size(), acknowledged.size() - found,
            (last.get() - t) / 1_000_000);
         locator.close();
      } finally {
         for (ActiveMQServerImpl s : new ActiveMQServerImpl[] {first, second}) if (s != null) { ActiveMQServerImpl x = s; Thread end = new Thread(() -> { try { x.stop(); } catch (Exception e) { } }); end.setDaemon(true); end.start(); end.join(8000); }
      }
   }
}
