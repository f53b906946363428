package kind

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// patroni is the databases of deploy/examples/patroni.yaml in a namespace.
type patroni struct{ namespace string }

// shopper is a pod at home that writes all the time, a row a connection, to whatever the Service of the primary leads to.
// What it notes is as of customers.
const shopper = `apiVersion: v1
kind: Pod
metadata: {name: customer}
spec:
  nodeSelector: {kubernetes.io/hostname: home-control-plane}
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers:
  - name: customer
    image: docker.io/lodestone-e2e/patroni:1
    env:
    - {name: PGPASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}
    - {name: PGCONNECT_TIMEOUT, value: "2"}
    command:
    - bash
    - -c
    - |
      ask() { timeout 30 psql -h db-primary -U shop -d shop -v ON_ERROR_STOP=1 -qAtc "$1"; }
      until ask "CREATE TABLE IF NOT EXISTS orders (n bigint PRIMARY KEY, what text)"; do sleep 0.2; done
      n=0
      while :; do
        n=$((n+1))
        if ask "INSERT INTO orders VALUES ($n, repeat('x', 200))" 2>/tmp/refused; then
          read -r up idle </proc/uptime
          echo "$up $n" >>/tmp/confirmed
        else
          read -r up idle </proc/uptime
          echo "$up $n $(tail -n1 /tmp/refused)" >>/tmp/refusals
          sleep 0.05
        fi
      done
`

// ask has a replica do what SQL says, over its socket, and returns what that printed.
func (p patroni) ask(ctx context.Context, replica, sql string) (string, error) {
	said, err := home.try(ctx, "", "exec", replica, "-n", p.namespace, "--",
		"timeout", "20", "psql", "-h", "/tmp", "-U", "postgres", "-d", "shop", "-v", "ON_ERROR_STOP=1", "-qAtc", sql)
	return strings.TrimSpace(said), err
}

// awaitPrimary waits until a replica is primary, and the Service leads to it.
func (p patroni) awaitPrimary(t *testing.T, replica string) {
	t.Helper()
	eventually(t, replica+" is primary", func(c *assert.CollectT) {
		said, err := p.ask(t.Context(), replica, "SELECT pg_is_in_recovery()")
		require.NoError(c, err)
		require.Equal(c, "f", said)
		pod, err := home.client.CoreV1().Pods(p.namespace).Get(t.Context(), replica, metav1.GetOptions{})
		require.NoError(c, err)
		require.Equal(c, "master", pod.Labels["role"], "Patroni labels the pod at home, wherever it runs")
	})
}

// awaitStandby waits until a replica confirms what the other one writes.
func (p patroni) awaitStandby(t *testing.T, replica, primary string) {
	t.Helper()
	eventually(t, replica+" is the standby that confirms", func(c *assert.CollectT) {
		said, err := p.ask(t.Context(), primary, "SELECT application_name FROM pg_stat_replication WHERE sync_state = 'sync'")
		require.NoError(c, err)
		require.Equal(c, replica, said)
	})
	readyPod(t, p.namespace, replica)
}

// requireRows checks that each row that was confirmed to the customer so far is on each replica.
func (p patroni) requireRows(t *testing.T) {
	t.Helper()
	confirmed := confirmedRows(t, p.namespace)
	last := strconv.Itoa(lastRow(confirmed))
	for _, replica := range []string{"db-0", "db-1"} {
		have := map[string]bool{}
		eventually(t, replica+" has the last row", func(c *assert.CollectT) {
			said, err := p.ask(t.Context(), replica, "SELECT n FROM orders")
			require.NoError(c, err)
			for row := range strings.Lines(said) {
				have[strings.TrimSpace(row)] = true
			}
			require.True(c, have[last])
		})
		for _, c := range confirmed {
			require.True(t, have[strconv.Itoa(c.row)], "row %d was confirmed and is not on %s", c.row, replica)
		}
	}
	t.Logf("all of %d confirmed rows are on each replica", len(confirmed))
}

// reachesHomesAPI has pods of a namespace that run in west reach home's API through the fabric alone, until the test ends.
func reachesHomesAPI(t *testing.T, namespace string) {
	t.Helper()
	home.kubectl(t, "label", "namespace", namespace, keys.HomeAPI+"="+keys.HomeAPIEnabled)
	manifests := home.kubectl(t, "kustomize", filepath.Join("..", "..", "deploy", "home-api"))
	_, err := home.try(t.Context(), strings.ReplaceAll(manifests, "image: lodestone-network", "image: lodestone-network:dev"), "apply", "-n",
		namespace, "-f", "-")
	require.NoError(t, err)
	before := home.kubectl(t, "get", "remotecluster", "west", "-o", "jsonpath={.spec.homeServer}")
	t.Cleanup(func() {
		_, err := home.try(context.Background(), "", "patch", "remotecluster", "west", "--type=merge", "-p",
			fmt.Sprintf(`{"spec":{"homeServer":%q}}`, before))
		require.NoError(t, err)
	})
	onlyFabric(t, "--home-server", "https://kubernetes:6443")
	home.kubectl(t, "rollout", "status", "deployment/lodestone-home-api", "-n", namespace, "--timeout=3m")
}

// TestPostgreSQLFailsOverToWestAndBack: Patroni in west keeps who is primary in home's API, as it does at home. The fabric alone joins the
// clusters.
func TestPostgreSQLFailsOverToWestAndBack(t *testing.T) {
	testbed.NotInShort(t)
	shop := namespace(t)
	db := patroni{namespace: shop}
	reachesHomesAPI(t, shop)
	began := time.Now()
	applyExample(t, shop, "patroni.yaml", shopper)
	others, far := nearAndFar(t, shop, "db-0", "db-1")
	near := others[0]
	eventually(t, "home's replica is primary, whichever was first", func(c *assert.CollectT) {
		said, err := db.ask(t.Context(), near, "SELECT pg_is_in_recovery()")
		require.NoError(c, err)
		if said == "t" {
			// Refused as long as Patroni does not know that this standby has all that is confirmed.
			said, err = home.try(t.Context(), "", "exec", near, "-n", shop, "--", "patronictl", "-c", "/etc/patroni/patroni.yml",
				"switchover", "db", "--leader", far, "--candidate", near, "--force")
			require.NoError(c, err)
		}
		require.Equal(c, "f", said)
	})
	db.awaitPrimary(t, near)
	db.awaitStandby(t, far, near)
	t.Logf("both have joined after %s", time.Since(began).Round(time.Second))

	during(t, shop, "The primary's pod is killed, and its node takes no pods.", func() {
		uncordon := cordon(t, home.node)
		require.NoError(t, home.client.CoreV1().Pods(shop).Delete(t.Context(), near, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		db.awaitPrimary(t, far)
		awaitRows(t, shop, 20)
		uncordon()
		db.awaitStandby(t, near, far)
	})
	db.requireRows(t)

	during(t, shop, "The node of west, where the primary is, is switched off, and on again.", func() {
		on := west.powerOff(t)
		db.awaitPrimary(t, near)
		awaitRows(t, shop, 20)
		on()
		awaitRestart(t, shop, far)
		db.awaitStandby(t, far, near)
	})
	db.requireRows(t)
}
