package kind

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// postgres is a pod's spec of PostgreSQL on a claim, as lines with their indentation
// (2): it makes a database at the path if there is none, and ends it cleanly.
const postgres = `  terminationGracePeriodSeconds: 60
  securityContext: {runAsUser: 65534, runAsGroup: 65534}
  containers:
  - name: postgres
    image: %[1]s
    command:
    - sh
    - -c
    - |
      set -e
      export PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=%[3]s
      if ! [ -s $PGDATA/ready ]; then
        rm -rf $PGDATA
        initdb -U postgres -A trust --no-locale -E UTF8 >/dev/null
        echo host all all all trust >>$PGDATA/pg_hba.conf
        echo yes >$PGDATA/ready
      fi
      postgres -c listen_addresses=* -c unix_socket_directories=/tmp -c jit=off &
      server=$!
      trap 'kill -INT $server; wait $server; exit 0' TERM
      wait $server
    readinessProbe: {exec: {command: [/usr/lib/postgresql/15/bin/pg_isready, -q, -h, /tmp, -U, postgres]}, periodSeconds: 1}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: %[2]s}}]
`

// postgresPod is a pod that has the database of a claim and answers as the Service.
const postgresPod = `apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: %s, labels: {app: pg}}
spec:
  nodeSelector: {kubernetes.io/hostname: home-control-plane}
`

// customers is a Service that leads to the database, and a pod at home that writes to
// it all the time, a row a connection. Of each row that was confirmed it notes when, in
// seconds since its machine was started, and the number.
const customers = `apiVersion: v1
kind: Service
metadata: {namespace: %[1]s, name: pg}
spec: {selector: {app: pg}, ports: [{port: 5432}]}
---
apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: customer}
spec:
  nodeSelector: {kubernetes.io/hostname: home-control-plane}
  terminationGracePeriodSeconds: 0
  containers:
  - name: customer
    image: %[2]s
    command:
    - sh
    - -c
    - |
      export PATH=/usr/lib/postgresql/15/bin:$PATH PGCONNECT_TIMEOUT=2
      ask() { timeout 10 psql -X -q -A -t -h pg -U postgres -d postgres -v ON_ERROR_STOP=1 -c "$1"; }
      until ask "CREATE TABLE IF NOT EXISTS orders (n bigint PRIMARY KEY, what text)"; do sleep 0.2; done
      n=0
      while :; do
        n=$((n+1))
        if ask "INSERT INTO orders VALUES ($n, repeat('x', 2000))" 2>/tmp/refused; then
          read -r up idle </proc/uptime
          echo "$up $n" >>/tmp/confirmed
        else
          sleep 0.05
        fi
      done
`

// confirmed is a row that the database has confirmed.
type confirmed struct {
	at  float64
	row int
}

// confirmedRows returns the rows that the customer of a namespace had confirmed so far.
func confirmedRows(t *testing.T, namespace string) []confirmed {
	t.Helper()
	var rows []confirmed
	for line := range strings.Lines(shell(t, namespace, "customer", "cat /tmp/confirmed 2>/dev/null || true")) {
		var c confirmed
		if _, err := fmt.Sscan(line, &c.at, &c.row); err != nil {
			break // the last one is being written
		}
		rows = append(rows, c)
	}
	return rows
}

// awaitRows waits until so many more rows are confirmed than there were.
func awaitRows(t *testing.T, namespace string, more int) {
	t.Helper()
	before := len(confirmedRows(t, namespace))
	eventually(t, "the customer's rows are confirmed", func(c *assert.CollectT) {
		assert.Greater(c, len(confirmedRows(t, namespace)), before+more)
	})
}

// gap returns the longest time without a confirmed row, and how often rows began to be
// refused, from the row of a number on.
func gap(rows []confirmed, since int) (longest time.Duration, times int) {
	for i := range rows {
		if i == 0 || rows[i].row <= since {
			continue
		}
		longest = max(longest, time.Duration((rows[i].at-rows[i-1].at)*float64(time.Second)))
		if rows[i].row != rows[i-1].row+1 {
			times++
		}
	}
	return longest, times
}

// requireAllRows checks that each confirmed row is in the database.
func requireAllRows(t *testing.T, namespace string) {
	t.Helper()
	rows := confirmedRows(t, namespace)
	have := map[int]bool{}
	for line := range strings.Lines(shell(t, namespace, "customer", `/usr/lib/postgresql/15/bin/psql -X -q -A -t -h pg -U postgres -d postgres -c "SELECT n FROM orders"`)) {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		require.NoError(t, err)
		have[n] = true
	}
	for _, c := range rows {
		require.True(t, have[c.row], "row %d was confirmed and is lost", c.row)
	}
	t.Logf("all of %d confirmed rows are there", len(rows))
}

// lastRow is the number of the last confirmed row.
func lastRow(rows []confirmed) int {
	if len(rows) == 0 {
		return 0
	}
	return rows[len(rows)-1].row
}

func TestADatabaseIsMovedUnderLoadAndLosesNoCommit(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(shared, shop, "pg"))
	home.apply(t, fmt.Sprintf(postgresPod, shop, "first")+fmt.Sprintf(postgres, image, "pg", "/data/pg"))
	deletePod(t, readyPod(t, shop, "first"))
	home.apply(t, fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {namespace: %s, name: pg}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: pg}}
  template:
    metadata: {labels: {app: pg}}
    spec:
%s`, shop, strings.ReplaceAll("\n"+fmt.Sprintf(postgres, image, "pg", "/data/pg"), "\n", "\n    ")[1:]+"\n"))
	home.apply(t, fmt.Sprintf(customers, shop, image))
	readyPod(t, shop, "customer")
	awaitRows(t, shop, 20)

	var ours time.Duration
	for _, cluster := range []string{"west", keys.Home} {
		awaitRows(t, shop, 50)
		since := lastRow(confirmedRows(t, shop))
		done := requireMoved(t, move(t, shop, "pg", cluster))
		awaitRows(t, shop, 20)
		longest, times := gap(confirmedRows(t, shop), since)
		t.Logf("moved to %s under load: the customer waited %s; pods could not use the claim for %s", cluster, longest.Round(10*time.Millisecond), done.Status.Downtime.Duration)
		assert.Equal(t, 1, times, "gaps that the customer has seen")
		ours = max(ours, longest)
		requireAllRows(t, shop)
	}

	theirs := byRestic(t, shop)
	t.Logf("the longest time without a confirmed row: %s with a move between clusters; %s with restic, by stop, backup, restore and start within one cluster and a repository on the same disk",
		ours.Round(10*time.Millisecond), theirs.Round(10*time.Millisecond))
}

// byRestic copies the database as it is done by hand, and returns how long the customer
// waited: stop, back up into a repository, restore into another volume, start.
func byRestic(t *testing.T, shop string) time.Duration {
	t.Helper()
	home.apply(t, fmt.Sprintf(shared, shop, "restored"))
	since := lastRow(confirmedRows(t, shop))
	home.kubectl(t, "scale", "deployment", "pg", "-n", shop, "--replicas=0")
	home.kubectl(t, "wait", "pod", "-n", shop, "-l", "app=pg", "--for=delete", "--timeout=180s")
	home.apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: restic}
spec:
  nodeSelector: {kubernetes.io/hostname: home-control-plane}
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  securityContext: {runAsUser: 65534, runAsGroup: 65534}
  containers:
  - name: restic
    image: %s
    env: [{name: RESTIC_PASSWORD, value: none}, {name: RESTIC_REPOSITORY, value: /repository/r}]
    command: [sh, -c, "set -e; restic init -q; restic --no-cache backup -q /data; restic --no-cache restore -q latest --target /restored"]
    volumeMounts: [{name: data, mountPath: /data}, {name: restored, mountPath: /restored}, {name: repository, mountPath: /repository}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: pg}}
  - {name: restored, persistentVolumeClaim: {claimName: restored}}
  - {name: repository, emptyDir: {}}
`, shop, image))
	eventually(t, "restic has copied the database", func(c *assert.CollectT) {
		pod, err := home.client.CoreV1().Pods(shop).Get(t.Context(), "restic", metav1.GetOptions{})
		require.NoError(c, err)
		assert.Equal(c, corev1.PodSucceeded, pod.Status.Phase)
	})
	home.apply(t, fmt.Sprintf(postgresPod, shop, "restored")+fmt.Sprintf(postgres, image, "restored", "/data/data/pg"))
	awaitRows(t, shop, 20)
	requireAllRows(t, shop)
	longest, _ := gap(confirmedRows(t, shop), since)
	return longest
}

// shared is a claim of its own.
const shared = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %s, name: %s}
spec:
  storageClassName: lodestone
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 256Mi}}
`
