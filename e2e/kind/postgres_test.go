package kind

import (
	"fmt"
	"slices"
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
		tellRefusals(t, shop, since)
		waited := gaps(confirmedRows(t, shop), since)
		t.Logf("moved to %s under load: the customer waited %s; pods could not use the claim for %s", cluster, waited, done.Status.Downtime.Duration)
		require.Len(t, waited, 1, "gaps that the customer has seen")
		ours = max(ours, waited[0])
		requireAllRows(t, shop)
	}

	theirs := byRestic(t, shop)
	t.Logf("the longest time without a confirmed row: %s with a move between clusters; %s with restic, by stop, backup, restore and start within one cluster and a repository on the same disk",
		ours, theirs)
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
	waited := gaps(confirmedRows(t, shop), since)
	require.NotEmpty(t, waited, "gaps that the customer has seen")
	return slices.Max(waited)
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
