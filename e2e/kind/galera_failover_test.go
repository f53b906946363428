package kind

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// galeraDrill is a cluster of one replica that is made of the copy of a volume of another cluster's, as an administrator would try it.
const galeraDrill = `apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: drill}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsUser: 65534, runAsGroup: 65534, fsGroup: 65534, fsGroupChangePolicy: OnRootMismatch}
  containers:
  - name: mariadb
    image: docker.io/lodestone-e2e/galera:1
    command:
    - bash
    - -ec
    - |
      options=(--defaults-file=/etc/galera/galera.cnf --wsrep-cluster-address=gcomm:// --wsrep-cluster-name=drill)
      mariadbd "${options[@]}" --wsrep-recover --log-error=/tmp/recovery.log
      position=$(sed -n 's/.*Recovered position: *//p' /tmp/recovery.log | tail -n 1)
      sed -i 's/^safe_to_bootstrap: 0/safe_to_bootstrap: 1/' /data/db/grastate.dat
      exec mariadbd "${options[@]}" --wsrep-start-position="$position" --wsrep-new-cluster
    volumeMounts: [{name: data, mountPath: /data}, {name: config, mountPath: /etc/galera}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: %[2]s}}
  - {name: config, configMap: {name: db}}
`

// TestAReplicaOfGaleraFailsOverAndGoesBack: the replica in west has a copy of its volume at home. When west is lost the other two go on;
// the third starts at home with what it had, gets from them what it has missed, and goes back once west is there. A customer writes all
// the time, and no row that was confirmed is lost.
func TestAReplicaOfGaleraFailsOverAndGoesBack(t *testing.T) {
	if !thorough() {
		t.Skip("it takes minutes in which west is paused: set E2E_LONG")
	}
	shop := namespace(t)
	db := galera{namespace: shop}
	onlyFabric(t)
	applyExample(t, shop, "galera.yaml", buyer, "storageClassName: lodestone", "storageClassName: "+diskClass)
	db.requireTogether(t)
	_, far := nearAndFar(t, shop, replicas...)
	claim := "data-" + far
	replicate(t, shop, claim)

	during(t, shop, "A drill: a database of its own starts with the copy, while replicas and points go on.", func() {
		said := succeed(t, "failover", claim, "-n", shop, "--test", "--name", "drill")
		confirmed := confirmedRows(t, shop)
		home.apply(t, fmt.Sprintf(galeraDrill, shop, "drill"))
		require.NotEqual(t, virtualNode, readyPod(t, shop, "drill").Spec.NodeName, said)
		has := requirePrefix(t, confirmed, db.rowsOf(t, "drill"))
		require.Positive(t, has)
		t.Logf("the drill has the first %d of %d rows", has, len(confirmed))
		home.kubectl(t, "delete", "pod", "drill", "-n", shop)
		home.kubectl(t, "delete", "pvc", "drill", "-n", shop)
		awaitVersion(t, shop, claim)
	})

	var unpause func()
	during(t, shop, "West is lost: its replica fails over to home.", func() {
		unpause = loseWest(t)
		awaitRows(t, shop, 20)
		tellAge(t, shop, claim)
		began := time.Now()
		succeed(t, "failover", claim, "-n", shop, "--fence", "Declared", "--yes")
		db.requireTogether(t)
		require.Equal(t, home, volumeOf(t, shop, claim).in)
		t.Logf("all three replicas are together at home %s after the command", time.Since(began).Round(time.Second))
	})
	db.requireRows(t)

	during(t, shop, "West is back: its replica ends.", func() {
		unpause()
		awaitEnded(t, shop, claim, "app=db")
		db.requireTogether(t)
	})
	db.requireRows(t)

	during(t, shop, "The replica goes back to west.", func() {
		began := time.Now()
		succeed(t, "failback", claim, "-n", shop, "--keep-source-for", "0s")
		db.requireTogether(t)
		t.Logf("it is in west again %s after the command", time.Since(began).Round(time.Second))
	})
	_, now := nearAndFar(t, shop, replicas...)
	assert.Equal(t, far, now)
	db.requireRows(t)
	succeed(t, "move", "finalize", claim, "-n", shop)
	succeed(t, "replicate", "delete", claim, "-n", shop, "--yes")
	assert.Equal(t, corev1.ClaimBound, claimOf(t, shop, claim).Status.Phase)
}

// tellAge logs how much older the newest version of a claim is than the last row that was confirmed, and how many rows it lacks.
func tellAge(t *testing.T, namespace, claim string) {
	t.Helper()
	sealed := replicaOf(t, t, namespace, claim+"-home").Status.Standbys[0].Sealed
	require.NotNil(t, sealed)
	// Rows are noted by the time since the customer's machine was started.
	var up float64
	var now int64
	_, err := fmt.Sscan(shell(t, namespace, "customer", "read -r up idle </proc/uptime; echo $up $(date +%s)"), &up, &now)
	require.NoError(t, err)
	cut := up - float64(now-sealed.Unix())
	rows := confirmedRows(t, namespace)
	behind := slices.IndexFunc(rows, func(c confirmed) bool { return c.at > cut })
	require.Positive(t, behind)
	t.Logf("the newest version is %.0f s older than the last row that was confirmed, and lacks about %d of %d rows, which the others have",
		rows[len(rows)-1].at-cut, len(rows)-behind, len(rows))
}
