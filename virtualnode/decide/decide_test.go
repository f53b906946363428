package decide

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

func TestStepsOfAPodThatLives(t *testing.T) {
	for name, test := range map[string]struct {
		o    Observation
		want Verb
		tell string // reason of the event
	}{
		"it waits for its namespace":           {o: observe(notGiven), want: Report, tell: "NamespaceNotGiven"},
		"it waits until the namespace is read": {o: observe(unseen), want: Report, tell: "ClusterNotSeen"},
		"it waits for its name": {o: observe(func(o *Observation) { o.Blocking = &remotev1alpha1.ShadowPod{} }), want: Report,
			tell: "NameTaken"},
		"first it is protected":         {o: observe(), want: Protect},
		"then the ShadowPod is created": {o: observe(protected), want: Create},
		"then it says so":               {o: observe(protected, shadow()), want: Record},
		"then it starts":                {o: observe(protected, recorded, shadow()), want: Start},
		"what it waits for there is told": {o: observe(protected, recorded, shadow(started, refusedThere)), want: Report,
			tell: "RemotePodPending"},
		"then it runs": {o: observe(protected, recorded, shadow(started), remote(corev1.PodRunning)), want: Report},
		"its address is told": {o: observe(protected, recorded, shadow(started), remote(corev1.PodRunning), func(o *Observation) {
			reported(o)
			delete(o.Pod.Annotations, keys.RemoteIP)
		}), want: Annotate},
		"and all is well": {o: observe(protected, recorded, shadow(started), remote(corev1.PodRunning), reported),
			want: Idle},
		"changes follow": {o: observe(protected, recorded, shadow(started, older), remote(corev1.PodRunning), reported),
			want: Follow},
		"a silent cluster is no news": {o: observe(protected, recorded, shadow(started), remote(corev1.PodRunning), stale), want: Idle},
		"it ended there": {o: observe(protected, recorded, shadow(started), remote(corev1.PodFailed),
			phase(corev1.PodRunning)), want: Report},
		"it is lost":                 {o: observe(protected, recorded, shadow(started, lost)), want: Fail, tell: "RemotePodLost"},
		"its ShadowPod is gone":      {o: observe(protected, recorded), want: Lose},
		"nobody knows what is there": {o: observe(protected, recorded, unseen), want: Idle},
		"its ShadowPod is being deleted": {o: observe(protected, recorded, shadow(started, going), remote(corev1.PodRunning), reported),
			want: Idle},
		"a late request made a ShadowPod":  {o: observe(protected, recorded, shadow(other)), want: Lose},
		"somebody took off the finalizer":  {o: observe(recorded, shadow(started), remote(corev1.PodRunning), reported), want: Protect},
		"somebody took off the annotation": {o: observe(protected, shadow(started), remote(corev1.PodRunning)), want: Record},
		"somebody changed the annotation":  {o: observe(protected, copyIs("west-uid", "x"), shadow(started)), want: Record},
		"it runs in another cluster": {o: observe(protected, copyIs("east-uid", "s1"), shadow(started, older)), want: Idle,
			tell: "OtherCluster"},
		"the cluster never answered":           {o: observe(protected, recorded, unknown, shadow(started, older)), want: Idle},
		"its ShadowPod goes before it started": {o: observe(protected, shadow(going)), want: Report, tell: "NameTaken"},
		"its namespace was closed since": {o: observe(protected, recorded, shadow(started), remote(corev1.PodRunning), reported, closed),
			want: Idle},
		"its namespace was closed before": {o: observe(protected, closed), want: Refuse, tell: "NamespaceNotOpen"},
		"the namespace there was taken back": {o: observe(protected, recorded, notGiven, shadow(started), remote(corev1.PodRunning), reported),
			want: Idle},
		"a request failed: first that is told": {o: observe(protected, func(o *Observation) { o.Problem = "no rights" }), want: Report,
			tell: "RemoteRequestFailed"},
		"a claim of it stays at home: first that is told": {o: observe(protected, staysAtHome), want: Report, tell: "ClaimStaysHome"},
		"then it is asked again, since it has no controller": {o: observe(protected, staysAtHome, replaceable, told), want: Create,
			tell: "ClaimStaysHome"},
		"one that has a controller is replaced": {o: observe(protected, staysAtHome, replaceable, ownedBySet, told), want: Replace,
			tell: "ClaimStaysHome"},
		"but not before the words are read": {o: observe(protected, staysAtHome, replaceable, ownedBySet), want: Report,
			tell: "ClaimStaysHome"},
		"and not again at once":                {o: observe(protected, staysAtHome, ownedBySet, told), want: Create, tell: "ClaimStaysHome"},
		"once the claim was marked it goes on": {o: observe(protected, staysAtHome, replaceable, ownedBySet, told, shadow()), want: Record},
		"one that runs is not replaced": {o: observe(protected, staysAtHome, replaceable, ownedBySet, recorded, shadow(started),
			remote(corev1.PodRunning), reported), want: Idle},
		"somebody deletes the pod there": {o: observe(protected, recorded, shadow(started), remote(corev1.PodRunning), reported,
			func(o *Observation) { o.Remote.DeletionTimestamp = ptr.To(now) }), want: Idle, tell: "RemotePodEnding"},
		"the node is gone for good": {o: observe(protected, recorded, shadow(started), remote(corev1.PodRunning), func(o *Observation) {
			o.HostIP, o.Current = "", false
		}), want: Idle},
		"its pod there is not listed yet, as after a start": {o: observe(
			protected, recorded, shadow(started), remote(corev1.PodRunning), reported,
			func(o *Observation) { o.Remote, o.Namespace.Seen = nil, false }), want: Idle},
		"its pod there is being made again": {o: observe(protected, recorded, shadow(started), phase(corev1.PodRunning), func(o *Observation) {
			o.Pod.Status.Reason = "x"
		}), want: Report},
	} {
		t.Run(name, func(t *testing.T) { check(t, test.o, test.want, test.tell) })
	}
}

func TestStepsOfAPodThatLeaves(t *testing.T) {
	for name, test := range map[string]struct {
		o    Observation
		want Verb
		tell string
	}{
		"nothing was ever asked for":              {o: observe(deleting), want: Release},
		"protected, and nothing started":          {o: observe(deleting, protected), want: Release},
		"a ShadowPod that starts nothing":         {o: observe(deleting, protected, shadow()), want: Release},
		"the cluster is away and nothing started": {o: observe(deleting, protected, unseen, unknown, notGiven), want: Release},
		"it runs":                             {o: observe(deleting, protected, recorded, shadow(started)), want: End},
		"recorded, maybe started":             {o: observe(deleting, protected, recorded, shadow()), want: End},
		"started, and the annotation is gone": {o: observe(deleting, protected, shadow(started)), want: End},
		"it is ending":                        {o: observe(deleting, protected, recorded, shadow(started, going, graceIs(30))), want: Idle},
		"it is ending and its status changes": {o: observe(deleting, protected, recorded, shadow(started, going, graceIs(30)),
			remote(corev1.PodRunning)), want: Report},
		"the user has no more patience": {o: observe(graceful(0), protected, recorded, shadow(started, going, graceIs(30))),
			want: End},
		"a longer time is not passed on": {o: observe(graceful(60), protected, recorded, shadow(started, going, graceIs(30))),
			want: Idle},
		"it is not seen any more":                 {o: observe(deleting, protected, recorded), want: Finish},
		"nobody knows what is there":              {o: observe(deleting, protected, recorded, unseen), want: Finish},
		"a late request made another ShadowPod":   {o: observe(deleting, protected, recorded, shadow(other)), want: Finish},
		"another ShadowPod that somebody started": {o: observe(deleting, protected, recorded, shadow(other, started)), want: End},
		"it may run in another cluster": {o: observe(deleting, protected, copyIs("east-uid", "s1")), want: Idle,
			tell: "OtherCluster"},
		"the cluster never answered":          {o: observe(deleting, protected, recorded, unknown, unseen), want: Idle},
		"the user released it":                {o: observe(deleting, recorded, shadow(started), remote(corev1.PodRunning)), want: Release},
		"it is gone, its ShadowPod is not":    {o: observe(shadow(started), noPod), want: Sweep},
		"it is gone, a late ShadowPod is not": {o: observe(shadow(), noPod), want: Sweep},
		"both are going":                      {o: observe(shadow(going), noPod), want: Idle},
		"both are gone":                       {o: observe(noPod), want: Idle},
		"it failed and its copy runs": {o: observe(failed, protected, recorded, shadow(started), remote(corev1.PodRunning)),
			want: End},
		"it failed and its copy has none": {o: observe(failed, protected, recorded, shadow(started, lost)), want: End},
		"it failed and its log is kept": {o: observe(failed, protected, recorded, shadow(started), remote(corev1.PodFailed)),
			want: Idle},
		"it failed and its copy goes": {o: observe(failed, protected, recorded, shadow(started, going), remote(corev1.PodFailed)),
			want: Idle},
		"it failed and its copy is gone":       {o: observe(failed, protected, recorded), want: Finish},
		"it failed before anything started":    {o: observe(failed, protected), want: Release},
		"it failed and was released":           {o: observe(failed, recorded, shadow(started), remote(corev1.PodRunning)), want: End},
		"it was refused":                       {o: observe(failed), want: Idle},
		"it failed and a late request is left": {o: observe(failed, shadow()), want: End},
		"its log is kept until it is deleted": {o: observe(failed, deleting, protected, recorded, shadow(started),
			remote(corev1.PodFailed)), want: End},
		"it ends, and the status is no news": {o: observe(deleting, protected, recorded, shadow(started, going, graceIs(30)),
			remote(corev1.PodRunning), stale), want: Idle},
		"it ends and the namespace was taken back": {o: observe(deleting, protected, recorded, notGiven, shadow(started)), want: End},
		"it ends in a namespace that is not open":  {o: observe(deleting, protected, recorded, closed, shadow(started)), want: End},
		"it ended there while it is being deleted": {o: observe(deleting, protected, recorded, shadow(started, going, graceIs(30)),
			remote(corev1.PodSucceeded)), want: Report},
		"it is deleted while its ShadowPod is gone": {o: observe(deleting, protected, recorded, failed), want: Finish},
	} {
		t.Run(name, func(t *testing.T) { check(t, test.o, test.want, test.tell) })
	}
}

func check(t *testing.T, o Observation, want Verb, tell string) {
	t.Helper()
	got := Next(o)
	assert.Equal(t, want, got.Verb)
	if tell == "" {
		assert.Nil(t, got.Tell)
	} else if assert.NotNil(t, got.Tell) {
		assert.Equal(t, tell, got.Tell.Reason)
	}
}

func TestGraceIsPassedOn(t *testing.T) {
	assert.Equal(t, ptr.To(int64(5)), Next(observe(graceful(5), protected, recorded, shadow(started))).Grace)
	assert.Equal(t, ptr.To(int64(0)), Next(observe(graceful(0), protected, recorded, shadow(started))).Grace)
	assert.Nil(t, Next(observe(failed, protected, recorded, shadow(started), remote(corev1.PodRunning))).Grace,
		"as long as the pod itself says")
}

func TestWhatIsToldIsToldOnce(t *testing.T) {
	o := observe(notGiven)
	step := Next(o)
	assert.Equal(t, "NamespaceNotGiven", step.Status.Reason)
	o.Pod.Status = step.Status
	assert.Equal(t, Idle, Next(o).Verb)

	o = observe(protected, func(o *Observation) { o.Problem = "no rights" })
	o.Pod.Status = Next(o).Status
	assert.Equal(t, Create, Next(o).Verb, "the request is tried again")
}

func TestPodsThatMayNotRunThere(t *testing.T) {
	for name, test := range map[string]struct {
		o    Observation
		want string
	}{
		"of a DaemonSet": {o: observe(ownedBy("DaemonSet")), want: "DaemonSetPod"},
		"of a Job":       {o: observe(ownedBy("Job"))},
		"with claims of devices": {o: observe(homeChange(func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("gpu")}}
		})), want: "ResourceClaims"},
		"of a kubelet's files": {o: observe(homeChange(func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		})), want: "StaticPod"},
		"that names its node": {o: observe(homeChange(func(p *corev1.Pod) { p.Status.Conditions = nil })), want: "NotScheduled"},
		"that no scheduler wanted there": {o: observe(homeChange(func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse })),
			want: "NotScheduled"},
		"of a namespace that is not open": {o: observe(closed), want: "NamespaceNotOpen"},
		"that a scheduler bound":          {o: observe()},
	} {
		t.Run(name, func(t *testing.T) {
			step := Next(test.o)
			if test.want == "" {
				assert.Equal(t, Protect, step.Verb)
				return
			}
			assert.Equal(t, Refuse, step.Verb)
			assert.Equal(t, corev1.PodFailed, step.Status.Phase)
			assert.Equal(t, test.want, step.Status.Reason)
			assert.Equal(t, test.want, step.Tell.Reason)
			assert.Equal(t, step.Status.Message, step.Tell.Text)
		})
	}
}

func TestAnAddressThatIsNotTakenIsTold(t *testing.T) {
	for name, row := range map[string]struct {
		network v1alpha1.PodNetwork
		ranges  remotecluster.PodRanges
		tell    string
	}{
		"networks that are apart":   {network: v1alpha1.Isolated},
		"ranges that are not known": {network: v1alpha1.Routed, tell: "NoPodRanges"},
		"an address of none of them": {network: v1alpha1.Routed, ranges: remotecluster.PodRanges{netip.MustParsePrefix("10.2.0.0/16")},
			tell: "AddressRefused"},
		"an address of one of its pods": {network: v1alpha1.Routed, ranges: remotecluster.PodRanges{netip.MustParsePrefix("10.1.0.0/16")}},
	} {
		t.Run(name, func(t *testing.T) {
			o := observe(protected, recorded, shadow(started), remote(corev1.PodRunning), func(o *Observation) {
				o.Network, o.Ranges = row.network, row.ranges
				o.Remote.Status.PodIPs = []corev1.PodIP{{IP: "10.1.0.1"}}
			})
			step := Next(o)
			if row.tell == "" {
				assert.Nil(t, step.Tell)
				return
			}
			assert.Empty(t, step.Status.PodIPs)
			if assert.NotNil(t, step.Tell) {
				assert.Equal(t, row.tell, step.Tell.Reason)
				assert.Contains(t, step.Tell.Text, "spec.podCIDRs")
			}
		})
	}
}

func TestAPodThatIsNotHeardOfIsNotReady(t *testing.T) {
	isReady := homeChange(func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	})
	noNode := observe(protected, recorded, shadow(started), remote(corev1.PodRunning), isReady, stale)
	assert.Equal(t, Idle, Next(noNode).Verb, "a Node object that somebody deleted says nothing")
	silent := observe(protected, recorded, shadow(started), remote(corev1.PodRunning), isReady, stale,
		func(o *Observation) { o.Silent = true })
	step := Next(silent)
	assert.Equal(t, Report, step.Verb)
	assert.Equal(t, corev1.PodRunning, step.Status.Phase)
	assert.Equal(t, corev1.ConditionFalse, step.Status.Conditions[1].Status)
	silent.Pod.Status = step.Status
	assert.Equal(t, Idle, Next(silent).Verb)
}

func TestAFailedPodIsNotReady(t *testing.T) {
	step := Next(observe(protected, recorded, shadow(started, lost), phase(corev1.PodRunning), homeChange(func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Ready: true}}
	})))
	assert.Equal(t, corev1.PodFailed, step.Status.Phase)
	assert.Equal(t, "The pod was removed.", step.Status.Message)
	assert.Equal(t, corev1.ConditionTrue, step.Status.Conditions[0].Status)
	assert.Equal(t, corev1.ConditionFalse, step.Status.Conditions[1].Status)
	assert.False(t, step.Status.ContainerStatuses[0].Ready)
}

func TestWhatARemoteClusterSaysOfALostPodIsBounded(t *testing.T) {
	step := Next(observe(protected, recorded, shadow(started, lost, func(s *remotev1alpha1.ShadowPod) {
		s.Status.Message = strings.Repeat("x", 100_000)
	})))
	assert.Equal(t, Fail, step.Verb)
	assert.Len(t, step.Status.Message, 2048)
	assert.Len(t, step.Tell.Text, 2048)
}

func TestACopyInAnotherNamespaceIsNeitherLostNorGone(t *testing.T) {
	in := func(namespace string) change {
		value := Copy{ClusterUID: "west-uid", ShadowUID: "s1", Namespace: namespace}.String()
		return homeChange(func(p *corev1.Pod) { p.Annotations = map[string]string{keys.RemoteCopy: value} })
	}
	for name, test := range map[string]struct {
		o    Observation
		want Verb
	}{
		"it is looked for where it was":       {o: observe(protected, in("shop")), want: Lose},
		"it is looked for elsewhere":          {o: observe(protected, in("shop-h0")), want: Idle},
		"it ends and is looked for elsewhere": {o: observe(protected, in("shop-h0"), deleting), want: Idle},
		"it ends where it was":                {o: observe(protected, in("shop"), deleting), want: Finish},
	} {
		t.Run(name, func(t *testing.T) {
			step := Next(test.o)
			assert.Equal(t, test.want, step.Verb)
			if test.want == Idle {
				assert.Equal(t, "OtherNamespace", step.Tell.Reason)
			}
		})
	}
}

func staysAtHome(o *Observation) { o.StaysHome = "claim data is not Lodestone's" }

func replaceable(o *Observation) { o.Replace = true }

func ownedBySet(o *Observation) {
	o.Pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "set",
		Controller: ptr.To(true)}}
}

// told gives the pod the status that says what it waits for.
func told(o *Observation) { o.Pod.Status = Next(*o).Status }
