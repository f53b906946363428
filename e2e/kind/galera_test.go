package kind

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// galera is the databases of deploy/examples/galera.yaml in a namespace.
type galera struct{ namespace string }

var replicas = []string{"db-0", "db-1", "db-2"}

// buyer is a pod at home that writes all the time, a row a connection, to a replica until that refuses one, and then to the next.
// What it notes is as of customers.
const buyer = `apiVersion: v1
kind: Pod
metadata: {name: customer}
spec:
  nodeSelector: {kubernetes.io/hostname: home-control-plane}
  terminationGracePeriodSeconds: 0
  containers:
  - name: customer
    image: docker.io/lodestone-e2e/galera:1
    env: [{name: MYSQL_PWD, valueFrom: {secretKeyRef: {name: db, key: password}}}]
    command:
    - bash
    - -c
    - |
      ask() { timeout 30 mariadb --no-defaults -h "$1" -u shop --connect-timeout=2 -NB shop -e "$2"; }
      until ask db-0.db "CREATE TABLE IF NOT EXISTS orders (n bigint PRIMARY KEY, what text)"; do sleep 0.2; done
      n=0 replica=0
      while :; do
        n=$((n+1))
        if ask db-$replica.db "INSERT INTO orders VALUES ($n, repeat('x', 200))" 2>/tmp/refused; then
          read -r up idle </proc/uptime
          echo "$up $n" >>/tmp/confirmed
        else
          read -r up idle </proc/uptime
          echo "$up $n $(tail -n1 /tmp/refused)" >>/tmp/refusals
          replica=$(((replica+1)%3))
          sleep 0.05
        fi
      done
`

// ask has a replica do what SQL says, over its socket, and returns what that printed.
func (g galera) ask(ctx context.Context, replica, sql string) (string, error) {
	said, err := home.try(ctx, sql, "exec", "-i", replica, "-n", g.namespace, "--",
		"timeout", "20", "mariadb", "--defaults-file=/etc/galera/galera.cnf", "-u", "root", "-NB", "shop")
	return strings.TrimSpace(said), err
}

// requireTogether waits until all replicas are ready and each of them sees all of them.
func (g galera) requireTogether(t *testing.T) {
	t.Helper()
	for _, replica := range replicas {
		readyPod(t, g.namespace, replica)
		eventually(t, replica+" sees all replicas", func(c *assert.CollectT) {
			size, err := g.ask(t.Context(), replica, "SHOW STATUS LIKE 'wsrep_cluster_size'")
			require.NoError(c, err)
			assert.Equal(c, "wsrep_cluster_size\t3", size)
		})
	}
}

// requireRows checks that each row that was confirmed to the customer so far is on each replica.
func (g galera) requireRows(t *testing.T) {
	t.Helper()
	confirmed := confirmedRows(t, g.namespace)
	for _, replica := range replicas {
		have := g.rowsOf(t, replica)
		for _, c := range confirmed {
			require.True(t, have[c.row], "row %d was confirmed and is not on %s", c.row, replica)
		}
	}
	t.Logf("all of %d confirmed rows are on each replica", len(confirmed))
}

// rowsOf are the numbers of the rows that a replica has, once it has caught up.
func (g galera) rowsOf(t *testing.T, replica string) map[int]bool {
	t.Helper()
	var said string
	eventually(t, replica+" has caught up", func(c *assert.CollectT) {
		var err error
		said, err = g.ask(t.Context(), replica, "SET wsrep_sync_wait=1; SELECT n FROM orders")
		require.NoError(c, err)
	})
	have := map[int]bool{}
	for line := range strings.Lines(said) {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		require.NoError(t, err)
		have[n] = true
	}
	return have
}

// during does something while the customer of a namespace writes, who has to go on afterwards, and logs how long he waited for a row at
// most.
func during(t *testing.T, namespace, what string, do func()) {
	t.Helper()
	t.Log(what)
	awaitRows(t, namespace, 20)
	since, began := lastRow(confirmedRows(t, namespace)), time.Now()
	do()
	awaitRows(t, namespace, 20)
	var waited float64
	rows := confirmedRows(t, namespace)
	for i := range rows {
		if rows[i].row > since && i > 0 {
			waited = max(waited, rows[i].at-rows[i-1].at)
		}
	}
	tellRefusals(t, namespace, since)
	t.Logf("in %s the customer waited for a row for %.2f s at most", time.Since(began).Round(time.Second), waited)
}

// nearAndFar returns which replicas of a database are at home, and which one is in west.
func nearAndFar(t *testing.T, namespace string, replicas ...string) (near []string, far string) {
	t.Helper()
	for _, replica := range replicas {
		if readyPod(t, namespace, replica).Spec.NodeName == virtualNode {
			far = replica
		} else {
			near = append(near, replica)
		}
	}
	require.Len(t, near, len(replicas)-1, "one replica is in west")
	return near, far
}

// awaitRestart waits until home has seen that a replica in west was started again.
func awaitRestart(t *testing.T, namespace, replica string) {
	t.Helper()
	eventually(t, "the replica in west has started again", func(c *assert.CollectT) {
		pod, err := home.client.CoreV1().Pods(namespace).Get(t.Context(), replica, metav1.GetOptions{})
		require.NoError(c, err)
		require.NotEmpty(c, pod.Status.ContainerStatuses)
		assert.Positive(c, pod.Status.ContainerStatuses[0].RestartCount)
		assert.Equal(c, corev1.PodRunning, pod.Status.Phase)
	})
}

// cutLanes has no packet of the lanes leave or reach home's gateway until the returned function is called, which may be done twice.
func cutLanes(t *testing.T) (mend func()) {
	t.Helper()
	nft := func(ctx context.Context, args ...string) error {
		_, err := home.inNode(ctx, append([]string{"nft"}, args...)...)
		return err
	}
	mend = func() {
		assert.NoError(t, nft(context.Background(), "add", "table", "inet", "e2e_lanes"))
		assert.NoError(t, nft(context.Background(), "delete", "table", "inet", "e2e_lanes"))
	}
	require.NoError(t, nft(t.Context(), "add", "table", "inet", "e2e_lanes"))
	t.Cleanup(mend)
	for hook, port := range map[string]string{"output": "dport", "input": "sport"} {
		require.NoError(t, nft(t.Context(), "add", "chain", "inet", "e2e_lanes", hook, "{ type filter hook "+hook+" priority 0; }"))
		require.NoError(t, nft(t.Context(), "add", "rule", "inet", "e2e_lanes", hook, "tcp", port, "7473", "drop"))
	}
	return mend
}

// outage is how long west is off under a database.
func outage() time.Duration {
	if thorough() {
		return 3 * time.Minute
	}
	return 30 * time.Second
}

// powerOff ends all that runs in the cluster's node at once, until the returned function is called, which may be done twice.
func (c *cluster) powerOff(t *testing.T) (on func()) {
	t.Helper()
	on = func() {
		assert.NoError(t, c.container(context.Background(), "start"))
		// As storage.sh does: the node has made its devices anew, and its storage does not start by itself.
		eventually(t, "the storage of "+c.name+" runs", func(collect *assert.CollectT) {
			_, err := c.inNode(context.Background(), "sh", "-c", "for i in $(seq 0 127); do test -e /dev/loop$i || "+
				"mknod -m 660 /dev/loop$i b 7 $i; done; cd /etc/systemd/system && systemctl start lodestone-*.service")
			assert.NoError(collect, err)
		})
	}
	t.Cleanup(on)
	require.NoError(t, c.container(t.Context(), "kill"))
	return on
}

func TestAGaleraClusterOutlivesTheLossOfOneSide(t *testing.T) {
	testbed.NotInShort(t)
	shop := namespace(t)
	db := galera{namespace: shop}
	onlyFabric(t)

	began := time.Now()
	applyExample(t, shop, "galera.yaml", buyer)
	db.requireTogether(t)
	t.Logf("all replicas have joined after %s", time.Since(began).Round(time.Second))
	near, far := nearAndFar(t, shop, replicas...)
	addresses := map[string]string{}
	for _, replica := range replicas {
		addresses[replica] = readyPod(t, shop, replica).Status.PodIP
	}

	t.Log("Each finds each other by the same name, at the same address.")
	for _, from := range []string{near[0], far} {
		for _, to := range replicas {
			said := shell(t, shop, from, "getent hosts "+to+".db."+shop+".svc.cluster.local")
			assert.Equal(t, addresses[to], strings.Fields(said)[0], "%s for %s", to, from)
		}
	}

	t.Log("What is written to one is on the others.")
	_, err := db.ask(t.Context(), near[0], "CREATE TABLE notes (n varchar(9) PRIMARY KEY)")
	require.NoError(t, err)
	for _, replica := range replicas {
		_, err := db.ask(t.Context(), replica, fmt.Sprintf("SET wsrep_sync_wait=7; INSERT INTO notes VALUES ('%s')", replica))
		require.NoError(t, err)
	}
	for _, replica := range replicas {
		said, err := db.ask(t.Context(), replica, "SET wsrep_sync_wait=1; SELECT n FROM notes ORDER BY n")
		require.NoError(t, err)
		assert.Equal(t, strings.Join(replicas, "\n"), said, replica)
	}

	during(t, shop, "The lanes are cut: home goes on, and west refuses.", func() {
		mend := cutLanes(t)
		eventually(t, "the replica in west is alone", func(c *assert.CollectT) {
			said, err := db.ask(t.Context(), far, "SHOW STATUS LIKE 'wsrep_cluster_status'")
			require.NoError(c, err)
			assert.Equal(c, "wsrep_cluster_status\tnon-Primary", said)
		})
		_, err := db.ask(t.Context(), far, "INSERT INTO notes VALUES ('alone')")
		require.ErrorContains(t, err, "WSREP has not yet prepared node for application use")
		eventually(t, "it is not ready at home", func(c *assert.CollectT) {
			assert.Equal(c, "False", home.kubectl(t, "get", "pod", far, "-n", shop, "-o",
				`jsonpath={.status.conditions[?(@.type=="Ready")].status}`))
		})
		awaitRows(t, shop, 20)
		_, err = db.ask(t.Context(), near[1], "INSERT INTO notes VALUES ('majority')")
		require.NoError(t, err)
		mend()
		db.requireTogether(t)
	})
	said, err := db.ask(t.Context(), far, "SET wsrep_sync_wait=1; SELECT count(*) FROM notes WHERE n = 'majority'")
	require.NoError(t, err)
	assert.Equal(t, "1", said)
	db.requireRows(t)

	during(t, shop, "The pod of west's only gateway is deleted.", func() {
		loseGateways(t, func() {
			west.kubectl(t, "delete", "pods", "-n", keys.NetworkNamespace, "-l", gatewayPods)
		}, west)
		awaitRows(t, shop, 20)
		db.requireTogether(t)
	})
	db.requireRows(t)

	during(t, shop, "The programs of both gateways are killed at once.", func() {
		loseGateways(t, func() {
			for _, c := range []*cluster{home, west} {
				_, err := c.inNode(t.Context(), "pkill", "-KILL", "-f", "^/lodestone-network agent")
				require.NoError(t, err)
			}
		}, home, west)
		awaitRows(t, shop, 20)
		db.requireTogether(t)
	})
	db.requireRows(t)

	during(t, shop, "The node of west is switched off, and on again.", func() {
		on := west.powerOff(t)
		awaitRows(t, shop, 20)
		time.Sleep(outage())
		on()
		awaitRestart(t, shop, far)
		db.requireTogether(t)
	})
	db.requireRows(t)

	during(t, shop, "The volume of a replica at home is moved to west.", func() {
		done := requireMoved(t, move(t, shop, "data-"+near[1], "west"))
		assert.Equal(t, v1alpha1.TransportDirect, done.Status.Claims[0].Transport, done.Status.Claims[0].TransportMessage)
		db.requireTogether(t)
		assert.Equal(t, virtualNode, readyPod(t, shop, near[1]).Spec.NodeName)
	})
	db.requireRows(t)

	during(t, shop, "All replicas are killed at once.", func() {
		for _, c := range []*cluster{home, west} {
			_, err := c.inNode(t.Context(), "sh", "-c", "kill -KILL $(pgrep -x mariadbd)")
			require.NoError(t, err)
		}
		db.requireTogether(t)
	})
	db.requireRows(t)
	for _, claim := range replicas {
		assert.NotContains(t, claimOf(t, shop, "data-"+claim).Finalizers, keys.MoveFinalizer)
	}
}
