import java.util.*;
import java.util.concurrent.*;
import org.apache.activemq.artemis.lockmanager.*;
import org.apache.activemq.artemis.lockmanager.zookeeper.CuratorDistributedLockManager;
import org.apache.curator.test.*;

/** How long a holder of the lock learns nothing of a lost ensemble while its own look at the lock is under way. */
public class LockWindow {
   static CuratorDistributedLockManager manager(String connect, String settings) {
      Map<String, String> p = new HashMap<>(Map.of("connect-string", connect, "namespace", "x"));
      for (String s : settings.split(",")) p.put(s.split("=")[0], s.split("=")[1]);
      return new CuratorDistributedLockManager(p);
   }
   public static void main(String[] a) throws Exception {
      for (int i = 0; i < Integer.parseInt(a[1]); i++) trial(a[0]);
      System.exit(0);
   }
   static void trial(String settings) throws Exception {
      List<InstanceSpec> specs = new ArrayList<>();
      for (int i = 0; i < 3; i++) specs.add(new InstanceSpec(null, -1, -1, -1, true, -1, 500, 100));
      try (TestingCluster cluster = new TestingCluster(specs)) {
         cluster.start();
         var active = manager(cluster.getConnectString(), settings);
         var control = manager(cluster.getConnectString(), settings);
         var backup = manager(cluster.getConnectString(), settings);
         active.start(); control.start(); backup.start();
         DistributedLock lock = active.getDistributedLock("a"), other = control.getDistributedLock("b");
         if (!lock.tryLock() || !other.tryLock()) throw new IllegalStateException();
         var fired = new ConcurrentHashMap<String, Long>(); var left = new CountDownLatch(1);
         lock.addListener(() -> fired.put("active", System.nanoTime()));
         other.addListener(() -> fired.put("control", System.nanoTime()));
         backup.addUnavailableManagerListener(() -> { fired.put("backup", System.nanoTime()); left.countDown(); });
         Thread.sleep(1500);
         long t = System.nanoTime();
         var instances = new ArrayList<>(specs); Collections.shuffle(instances);
         for (int i = 0; i < 2; i++) cluster.killServer(instances.get(i));
         if (!left.await(60, TimeUnit.SECONDS)) { System.out.println("backup noticed nothing"); return; }
         boolean before = fired.containsKey("active");
         String how; long begun = System.nanoTime();
         try { how = "held " + lock.isHeldByCaller(); } catch (UnavailableStateException e) { how = e.getCause() == null ? "known" : e.getCause().getClass().getSimpleName(); }
         long answered = System.nanoTime();
         for (int i = 0; i < 600 && (!fired.containsKey("active") || !fired.containsKey("control")); i++) Thread.sleep(50);
         System.out.printf("%s backup=%d call=%d active=%s control=%s first=%s %s%n", settings, (fired.get("backup") - t) / 1_000_000, (answered - begun) / 1_000_000,
            fired.containsKey("active") ? (fired.get("active") - t) / 1_000_000 : "-", fired.containsKey("control") ? (fired.get("control") - t) / 1_000_000 : "-", before ? "active" : "backup", how);
         new Thread(active::stop).start(); new Thread(control::stop).start(); new Thread(backup::stop).start();
      }
   }
}
