package move

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

func copied(claim, standby string, versions ...string) v1alpha1.VolumeReplica {
	r := v1alpha1.VolumeReplica{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: claim + "-" + standby},
		Spec:       v1alpha1.VolumeReplicaSpec{Claims: []string{claim}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: standby}}},
	}
	if len(versions) == 0 {
		return r
	}
	cut := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	at := v1alpha1.ReplicaStandbyStatus{Cluster: standby, Sealed: &cut}
	for _, name := range versions {
		at.Versions = append(at.Versions, v1alpha1.ReplicaVersion{Name: name, Cut: cut})
	}
	r.Status.Standbys = []v1alpha1.ReplicaStandbyStatus{at}
	return r
}

func TestTheCopyThatAClaimGetsIsChosen(t *testing.T) {
	all := []v1alpha1.VolumeReplica{copied("data", "east", "v2", "v1"),
		copied("wal", "east", "v1"), copied("wal", "west", "v1"), copied("log", "west")}
	// One is in the other direction, and two are in one cluster.
	here := copied("db", "west")
	here.Status.Primary = "west"
	second := copied("twice", "east", "v3")
	second.Name = "second"
	all = append(all, here, copied("db", "east", "v1"), copied("twice", "east", "v1"), second)
	for name, row := range map[string]struct {
		claim, to, version string
		want, says         string
		code               cli.ExitCode
	}{
		"the only one":                         {claim: "data", want: "data-east"},
		"an earlier version":                   {claim: "data", version: "v1", want: "data-east"},
		"the one in a cluster":                 {claim: "wal", to: "west", want: "wal-west"},
		"none":                                 {claim: "cache", says: `claim "cache" has no second copy`, code: cli.Refused},
		"none there":                           {claim: "data", to: "west", says: `claim "data" has no second copy in cluster "west"`, code: cli.Refused},
		"several":                              {claim: "wal", says: "say which with --to east or west", code: cli.Usage},
		"the other one is where the data is":   {claim: "db", want: "db-east"},
		"the one that has the version":         {claim: "wal", version: "v1", says: "say which with --to east or west", code: cli.Usage},
		"of two in one cluster by its version": {claim: "twice", version: "v3", want: "second"},
		"two in one cluster": {claim: "twice", says: `in cluster "east" (VolumeReplicas twice-east, second): say which with --version`,
			code: cli.Usage},
		"nothing is sealed":      {claim: "log", says: `"log" in cluster "west" has no sealed version yet`, code: cli.Refused},
		"no such version":        {claim: "data", version: "v9", says: `no version "v9"; there are: v2 (2026-01-01T12:00:00Z), v1 (`, code: cli.Refused},
		"a version of another's": {claim: "wal", to: "east", version: "v2", says: `no version "v2"`, code: cli.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := chooseReplica(all, row.claim, row.to, row.version)
			if row.says != "" {
				require.ErrorContains(t, err, row.says)
				assert.Equal(t, row.code, cli.ExitCodeOf(err))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, row.want, found.Name)
		})
	}
}

func TestClaimsOfOneMomentFailOverTogether(t *testing.T) {
	pair := copied("data", "east", "v2")
	pair.Spec.Claims = []string{"data", "wal"}
	one := copied("wal", "east", "v1")
	require.NoError(t, twice([]*v1alpha1.VolumeReplica{&pair}))
	require.ErrorContains(t, twice([]*v1alpha1.VolumeReplica{&pair, &one}),
		`claim "wal" has copies by VolumeReplica data-east and by wal-east`)
	f := &failover{}
	assert.Contains(t, f.describe(&pair, pair.Status.Standbys[0].Sealed.Time),
		`cluster east has a copy of claims "data", "wal", 0s old. All of `+
			"these claims get that, of one moment; the volumes that they have are kept")
}

func TestItIsSaidWhatEachFenceTakesForGranted(t *testing.T) {
	one := copied("data", "east", "v1")
	for fence, says := range map[v1alpha1.FailoverFence]string{
		v1alpha1.FenceProven:   "and is not used any more.",
		v1alpha1.FenceLease:    "it is waited until the remote agent there has ended the pods, as it has promised",
		v1alpha1.FenceDeclared: "pods there are taken for gone: if they run, they go on beside those that follow them.",
	} {
		f := &failover{fence: string(fence)}
		text := f.describe(&one, one.Status.Standbys[0].Sealed.Time)
		assert.Contains(t, text, says)
		assert.Equal(t, fence != v1alpha1.FenceProven, strings.Contains(text, "If its cluster does not answer"))
	}
}

func TestWhatBecameOfAFailoverIsSaid(t *testing.T) {
	move := &v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-1"}, Spec: v1alpha1.VolumeMoveSpec{
		Claims: []string{"data"}, Failover: &v1alpha1.MoveFailover{}}}
	move.Status.Target = &v1alpha1.MovePlace{Cluster: "west"}
	move.Status.Claims = []v1alpha1.MovedClaim{{Name: "data", Source: &v1alpha1.MovePlace{Cluster: "east"}}}
	move.Status.Failover = &v1alpha1.FailoverStatus{Cut: metav1.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), Fence: v1alpha1.FenceDeclared}
	assert.Equal(t, "claim data is now in cluster west; it has what was written until 2026-01-01T12:00:00Z (fence: Declared); its volume "+
		"in cluster east is kept (kubectl lodestone failback data-1 -n shop goes back there, kubectl lodestone "+
		"move finalize data-1 -n shop removes it)",
		report(move))
}
