package why

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// silent is a setting in which west does not answer, as the provisioner and the virtual node say it.
func silent(changes ...func(*Setting)) Setting {
	return setting(append([]func(*Setting){partitioned, func(s *Setting) {
		s.Clusters[0].Status.Conditions = append(s.Clusters[0].Status.Conditions, metav1.Condition{Type: v1alpha1.Reachable,
			Status: metav1.ConditionFalse, Message: "connection refused"})
		s.Clusters = append(s.Clusters, remoteCluster("east", metav1.ConditionTrue, "Ready", "volumes can be made there"))
	}}, changes...)...)
}

// copied is a copy of claim data, or of another one, in a cluster, that is so old; 0: nothing is sealed yet.
func copied(name, standby string, age time.Duration, changes ...func(*v1alpha1.VolumeReplica)) func(*Setting) {
	r := v1alpha1.VolumeReplica{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1alpha1.VolumeReplicaSpec{
		Claims: []string{"data"}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: standby}}, RPO: &metav1.Duration{Duration: 15 * time.Minute}},
		Status: v1alpha1.VolumeReplicaStatus{Primary: "west", Standbys: []v1alpha1.ReplicaStandbyStatus{{Cluster: standby}}}}
	state(metav1.ConditionFalse, "ClusterAway", "west does not answer")(&r)
	if age > 0 {
		r.Status.Standbys[0].Sealed = &metav1.Time{Time: now.Add(-age)}
		r.Status.Standbys[0].Versions = []v1alpha1.ReplicaVersion{{Name: "replica-u-v12-1795742003"}}
	}
	for _, change := range changes {
		change(&r)
	}
	return func(s *Setting) { s.Replicas = append(s.Replicas, r) }
}

func state(status metav1.ConditionStatus, reason, message string) func(*v1alpha1.VolumeReplica) {
	return func(r *v1alpha1.VolumeReplica) {
		r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ReplicaHealthy, Status: status, Reason: reason, Message: message}}
	}
}

func TestWhatWaitsForALostClusterIsToldWhichCopyThereIs(t *testing.T) {
	use := replica.Copy{Namespace: "shop", Claim: "data"}.Use()
	const bound = `claim "data" is bound, but its data is in cluster "west", which does not answer: connection refused`
	for name, test := range map[string]struct {
		claim   Claim
		setting Setting
		want    string
		fine    bool
	}{
		"there is a copy": {claim: claim(boundIn("west")), setting: silent(copied("data-east", "east", 7*time.Minute)),
			want: bound + `; cluster "east" has a copy of claim "data", 7m old (version 12): ` + use},
		"there is a late copy": {claim: claim(boundIn("west")), setting: silent(copied("data-east", "east", time.Hour)),
			want: bound + `; cluster "east" has a copy of claim "data", 60m old (version 12), which is more than its RPO of 15m: ` + use},
		"there are two copies": {claim: claim(boundIn("west")), setting: silent(copied("a-home", "home", 9*time.Minute),
			copied("b-east", "east", 8*time.Minute)), want: bound + `; cluster "east" has a copy of claim "data", 8m old (version 12): ` + use},
		"the newer one is in a cluster that does not answer either": {claim: claim(boundIn("west")), setting: silent(
			copied("a-home", "home", 9*time.Minute), copied("b-east", "east", time.Minute), func(s *Setting) {
				s.Clusters[1].Status.Conditions = s.Clusters[0].Status.Conditions
			}), want: bound + `; the home cluster has a copy of claim "data", 9m old (version 12): ` + use},
		"no version was sealed": {claim: claim(boundIn("west")), setting: silent(copied("data-east", "east", 0)), want: bound +
			`; VolumeReplica "data-east" has no sealed version, so there is no copy of claim "data" in cluster "east"`},
		"the cluster is gone for good": {claim: claim(boundIn("west")), setting: silent(copied("data-east", "east", 7*time.Minute),
			func(s *Setting) { s.Clusters = s.Clusters[1:] }), want: `claim "data" is bound, but its data is in cluster "west", which does not ` +
			`answer: it has no RemoteCluster any more; cluster "east" has a copy of claim "data", 7m old (version 12): ` + use},
		"its volume is gone with it": {claim: claim(boundIn("west"), func(c *Claim) {
			c.Claim.Status.Phase, c.Class, c.Volume = corev1.ClaimLost, nil, nil
		}), setting: silent(copied("data-east", "east", 7*time.Minute)), want: `claim "data" has lost its volume "pvc-1": restore the data from a ` +
			`backup, or delete the claim; cluster "east" has a copy of claim "data", 7m old (version 12): ` + replica.Copy{}.Look()},
		"nobody may read RemoteClusters": {claim: claim(boundIn("west")), setting: silent(copied("data-east", "east", 7*time.Minute),
			func(s *Setting) { s.Clusters, s.ClustersUnknown = nil, true }), want: `claim "data" is bound: its data is in cluster "west"`, fine: true},
		"the cluster answers": {claim: claim(boundIn("west")), setting: setting(copied("data-east", "east", 7*time.Minute)),
			want: `claim "data" is bound: its data is in cluster "west"`, fine: true},
		"there is none": {claim: claim(boundIn("west")), setting: silent(), want: `claim "data" is bound: its data is in cluster "west"`, fine: true},
		"it is of another claim": {claim: claim(boundIn("west")), setting: silent(copied("log-east", "east", time.Minute,
			func(r *v1alpha1.VolumeReplica) { r.Spec.Claims[0] = "log" })), want: `claim "data" is bound: its data is in cluster "west"`, fine: true},
		"it is of an earlier claim": {claim: claim(boundIn("west")), setting: silent(copied("data-east", "east", time.Minute,
			state(metav1.ConditionFalse, "ClaimGone", "it is another claim"))), want: bound},
	} {
		t.Run(name, func(t *testing.T) {
			answer := test.claim.Of(test.setting)
			assert.Equal(t, test.want, answer.Sentence)
			assert.Equal(t, !test.fine, answer.Waiting)
		})
	}
}

func TestAPodOfALostClusterIsToldWhichCopyThereIs(t *testing.T) {
	use := replica.Copy{Namespace: "shop", Claim: "data"}.Use()
	has := `; cluster "east" has a copy of claim "data", 7m old (version 12): ` + use
	s := silent(copied("data-east", "east", 7*time.Minute))
	waiting := Pod{Pod: pod(), Claims: []Claim{claim(boundIn("west"))}}
	answer := waiting.Of(s)
	assert.Equal(t, `pod "web-1" can run only in cluster "west", where the data of claim "data" is, but it does not answer: cluster west does not `+
		`answer: connection refused`+has, answer.Sentence)
	assert.Contains(t, answer.Facts, `replica data-east of claim data: version 12 in cluster "east", 7m old, RPO 15m (ClusterAway)`,
		"what is wrong is told already")

	there := Pod{Pod: pod(on("west")), Claims: []Claim{claim(boundIn("west"))}}
	assert.Contains(t, there.Of(s).Sentence, `; it may still run there`+has)
	bare := Pod{Pod: pod(on("west"))}
	assert.NotContains(t, bare.Of(s).Sentence, "copy")
}

func TestAReplicaIsAmongTheFactsWithWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		replica func(*Setting)
		line    string
	}{
		"all is well": {copied("data-east", "east", 7*time.Minute, state(metav1.ConditionTrue, "Sealed", "well")),
			`replica data-east of claim data: version 12 in cluster "east", 7m old, RPO 15m`},
		"it is late": {copied("data-east", "east", time.Hour, state(metav1.ConditionTrue, "Sealed", "well")),
			`replica data-east of claim data: version 12 in cluster "east", 60m old, RPO 15m (Late): the newest version is older than the RPO of 15m`},
		"it is refused": {copied("data-east", "east", 0, state(metav1.ConditionFalse, "NoSnapshots", "no snapshot can be taken")),
			`replica data-east of claim data: nothing sealed yet in cluster "east" (NoSnapshots): no snapshot can be taken`},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Contains(t, claim(boundIn("west")).Of(setting(test.replica)).Facts, test.line)
		})
	}
}
