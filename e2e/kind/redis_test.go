package kind

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// sentinels is the databases of deploy/examples/redis.yaml in a namespace.
type sentinels struct{ namespace string }

// guest is a pod at home that writes all the time, a row a connection, to whoever the sentinels say is primary. A row is confirmed once a
// replica has it, too. What it notes is as of customers.
const guest = `apiVersion: v1
kind: Pod
metadata: {name: customer}
spec:
  nodeSelector: {kubernetes.io/hostname: home-control-plane}
  terminationGracePeriodSeconds: 0
  containers:
  - name: customer
    image: ` + image + `
    env: [{name: REDISCLI_AUTH, valueFrom: {secretKeyRef: {name: db, key: password}}}]
    command:
    - sh
    - -c
    - |
      n=0 asked=0 primary=nobody
      while :; do
        n=$((n+1))
        said=$(printf 'SET order:%s x\nWAIT 1 2000\n' $n | timeout 10 redis-cli -h $primary 2>&1 | tr '\n' ' ')
        read -r up idle </proc/uptime
        case $said in
        'OK 1 '|'OK 2 ') echo "$up $n" >>/tmp/confirmed ;;
        *)
          echo "$up $n $said" >>/tmp/refusals
          asked=$(((asked+1)%3))
          primary=$(timeout 2 redis-cli -h db-$asked.db -p 26379 sentinel get-master-addr-by-name db 2>/dev/null | head -n 1)
          : ${primary:=nobody}
          sleep 0.05
          ;;
        esac
      done
`

// ask has a replica carry a command out, and returns what that printed.
func (r sentinels) ask(ctx context.Context, replica string, command ...string) (string, error) {
	said, err := home.try(ctx, "", append([]string{"exec", replica, "-n", r.namespace, "--", "timeout", "20", "redis-cli"}, command...)...)
	return strings.TrimSpace(said), err
}

// isPrimary says whether a replica takes writes.
func (r sentinels) isPrimary(ctx context.Context, t require.TestingT, replica string) bool {
	said, err := r.ask(ctx, replica, "role")
	require.NoError(t, err)
	return strings.HasPrefix(said, "master")
}

// awaitPrimary waits until one of some replicas is primary, and returns which.
func (r sentinels) awaitPrimary(t *testing.T, candidates ...string) (primary string) {
	t.Helper()
	eventually(t, "one of "+strings.Join(candidates, ", ")+" is primary", func(c *assert.CollectT) {
		for _, replica := range candidates {
			if r.isPrimary(t.Context(), c, replica) {
				primary = replica
				return
			}
		}
		assert.Fail(c, "none is")
	})
	return primary
}

// becomesPrimary has the sentinels make a replica the primary.
func (r sentinels) becomesPrimary(t *testing.T, replica, sentinel string) {
	t.Helper()
	_, err := r.ask(t.Context(), replica, "config", "set", "replica-priority", "1")
	require.NoError(t, err)
	eventually(t, replica+" is primary", func(c *assert.CollectT) {
		if !r.isPrimary(t.Context(), c, replica) {
			said, _ := r.ask(t.Context(), sentinel, "-p", "26379", "sentinel", "failover", "db") // refused while another one goes on
			assert.Fail(c, "it is not", said)
		}
	})
}

// requireTogether waits until all replicas are ready, and two of them follow the third.
func (r sentinels) requireTogether(t *testing.T) {
	t.Helper()
	for _, replica := range replicas {
		readyPod(t, r.namespace, replica)
	}
	// Two may say that they are primary, until the Sentinels have reached the old one.
	eventually(t, "two replicas follow the third", func(c *assert.CollectT) {
		var all []string
		for _, replica := range replicas {
			said, err := r.ask(t.Context(), replica, "info", "replication")
			require.NoError(c, err)
			if strings.Count(said, "state=online") == 2 {
				return
			}
			all = append(all, said)
		}
		assert.Fail(c, "they do not", all)
	})
}

// requireRows checks that each row that was confirmed to the customer so far is on each replica, but for those of the moment before a
// primary was lost: Sentinel promotes the replica that had most when it last asked, which may lack what another one has confirmed.
func (r sentinels) requireRows(t *testing.T) {
	t.Helper()
	confirmed := confirmedRows(t, r.namespace)
	for _, replica := range replicas {
		have := map[string]bool{}
		eventually(t, replica+" has the last row", func(c *assert.CollectT) {
			said, err := r.ask(t.Context(), replica, "keys", "order:*")
			require.NoError(c, err)
			for row := range strings.Lines(said) {
				have[strings.TrimPrefix(strings.TrimSpace(row), "order:")] = true
			}
			require.True(c, have[strconv.Itoa(lastRow(confirmed))])
		})
		lost := 0
		for i, c := range confirmed {
			if have[strconv.Itoa(c.row)] {
				continue
			}
			end := i // the last row before the primary was lost
			for end+1 < len(confirmed) && time.Duration((confirmed[end+1].at-confirmed[end].at)*float64(time.Second)) < noticeable {
				end++
			}
			require.Less(t, confirmed[end].at-c.at, 2.0, "row %d was confirmed well before a primary was lost, and is not on %s", c.row, replica)
			lost++
		}
		t.Logf("of %d confirmed rows %d are not on %s", len(confirmed), lost, replica)
	}
}

func TestRedisWithSentinelOutlivesTheLossOfItsPrimary(t *testing.T) {
	testbed.NotInShort(t)
	shop := namespace(t)
	db := sentinels{namespace: shop}
	onlyFabric(t)
	began := time.Now()
	applyExample(t, shop, "redis.yaml", guest)
	db.requireTogether(t)
	t.Logf("all replicas have joined after %s", time.Since(began).Round(time.Second))
	near, far := nearAndFar(t, shop, replicas...)

	during(t, shop, "The primary's pod at home is killed, and its node takes no pods.", func() {
		first := db.awaitPrimary(t, near...)
		uncordon := cordon(t, home.node)
		require.NoError(t, home.client.CoreV1().Pods(shop).Delete(t.Context(), first, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		others := []string{far}
		for _, replica := range near {
			if replica != first {
				others = append(others, replica)
			}
		}
		t.Logf("%s takes over from %s", db.awaitPrimary(t, others...), first)
		awaitRows(t, shop, 20)
		uncordon()
		db.requireTogether(t)
	})
	db.requireRows(t)

	during(t, shop, "West's replica becomes primary because it is asked to.", func() {
		db.becomesPrimary(t, far, near[0])
		db.requireTogether(t)
	})
	db.requireRows(t)

	during(t, shop, "The node of west, where the primary is, is switched off, and on again.", func() {
		on := west.powerOff(t)
		t.Logf("%s takes over from %s", db.awaitPrimary(t, near...), far)
		awaitRows(t, shop, 20)
		on()
		awaitRestart(t, shop, far)
		db.requireTogether(t)
	})
	db.requireRows(t)

	during(t, shop, "The lanes are cut under a primary in west, and mended.", func() {
		db.becomesPrimary(t, far, near[0])
		awaitRows(t, shop, 20)
		mend := cutLanes(t)
		db.awaitPrimary(t, near...)
		eventually(t, "the old primary takes no writes", func(c *assert.CollectT) {
			said, err := db.ask(t.Context(), far, "set", "alone", "x")
			require.NoError(c, err)
			assert.Contains(c, said, "NOREPLICAS")
		})
		awaitRows(t, shop, 20)
		mend()
		db.requireTogether(t)
	})
	db.requireRows(t)

	during(t, shop, "All replicas are killed at once.", func() {
		for _, c := range []*cluster{home, west} {
			_, err := c.inNode(t.Context(), "sh", "-c", "kill -KILL $(pgrep -x redis-server)")
			require.NoError(t, err)
		}
		db.requireTogether(t)
	})
	db.requireRows(t)
}
