package translate

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

func condition(kind corev1.PodConditionType, status corev1.ConditionStatus) corev1.PodCondition {
	return corev1.PodCondition{Type: kind, Status: status}
}

func remotePod(phase corev1.PodPhase, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func phased(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

// addressed gives a pod addresses.
func addressed(ips ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, ip := range ips {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
		}
	}
}

func TestAHomePodHasTheAddressByWhichHomeReachesIt(t *testing.T) {
	ranges, err := remotecluster.ParsePodRanges([]string{"10.244.0.0/16"})
	require.NoError(t, err)
	translations := remotecluster.Translations{{PodCIDR: ranges[0], ReachedAs: netip.MustParsePrefix("100.64.0.0/16")}}
	seen := Seen{Home: homePod(), Remote: remotePod(corev1.PodRunning, addressed("10.244.3.4")), Network: v1alpha1.Fabric, Ranges: ranges,
		Translations: translations}
	assert.Equal(t, "100.64.3.4", Status(seen).PodIP)
	seen.Remote = remotePod(corev1.PodRunning, addressed("100.64.3.4"))
	taken, refused := seen.Addresses()
	assert.Empty(t, taken, "no pod there has that itself")
	assert.Equal(t, []string{"100.64.3.4"}, refused)
}

func TestPhaseNeverGoesBack(t *testing.T) {
	for name, test := range map[string]struct{ home, remote, want corev1.PodPhase }{
		"it waits":                             {home: corev1.PodPending, remote: corev1.PodPending, want: corev1.PodPending},
		"it runs":                              {home: corev1.PodPending, remote: corev1.PodRunning, want: corev1.PodRunning},
		"it was made again":                    {home: corev1.PodRunning, remote: corev1.PodPending, want: corev1.PodRunning},
		"it failed":                            {home: corev1.PodRunning, remote: corev1.PodFailed, want: corev1.PodFailed},
		"home says that it failed":             {home: corev1.PodFailed, remote: corev1.PodRunning, want: corev1.PodFailed},
		"home says that it succeeded":          {home: corev1.PodSucceeded, remote: corev1.PodFailed, want: corev1.PodSucceeded},
		"a phase that does not exist":          {home: corev1.PodPending, remote: "Hacked", want: corev1.PodPending},
		"a phase that does not exist, running": {home: corev1.PodRunning, remote: "", want: corev1.PodRunning},
	} {
		t.Run(name, func(t *testing.T) {
			got := Status(Seen{Home: homePod(phased(test.home)), Remote: remotePod(test.remote)})
			assert.Equal(t, test.want, got.Phase)
		})
	}
}

func TestAnEphemeralContainerOfTheHomePodIsShown(t *testing.T) {
	debugger := func(name string) corev1.EphemeralContainer {
		return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(1000, 0)}}
	home := homePod(func(p *corev1.Pod) {
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{debugger("debug"), debugger("next")}
	})
	got := Status(Seen{Home: home, Remote: remotePod(corev1.PodRunning, func(p *corev1.Pod) {
		p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "debug", State: running}, {Name: "of-the-owner", State: running}}
	})})
	require.Len(t, got.EphemeralContainerStatuses, 1, "what the owner of the cluster adds is not home's")
	assert.Equal(t, "debug", got.EphemeralContainerStatuses[0].Name)
	assert.Equal(t, running, got.EphemeralContainerStatuses[0].State)
}

func TestConditionsOfHomeStayHomes(t *testing.T) {
	home := homePod(func(p *corev1.Pod) {
		p.Generation = 4
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "lb"}}
		p.Status.Conditions = []corev1.PodCondition{condition(corev1.PodScheduled, "True"), condition("lb", "False"),
			condition(corev1.PodReady, "True")}
	})
	there := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{
			condition(corev1.PodScheduled, "False"), condition("lb", "True"), condition(corev1.PodReady, "True"),
			condition(corev1.ContainersReady, "True"), condition(corev1.PodReady, "False"), condition("two words", "True"),
			condition("odd", "Perhaps"),
		}
	}
	got := Status(Seen{Home: home, Remote: remotePod(corev1.PodRunning, there)})
	containers := condition(corev1.ContainersReady, "True")
	containers.ObservedGeneration = 4
	assert.Equal(t, []corev1.PodCondition{
		condition(corev1.PodScheduled, "True"), condition("lb", "False"),
		{Type: corev1.PodReady, Status: "False", Reason: "ReadinessGatesNotReady", Message: "readiness gate lb of the pod is not True",
			ObservedGeneration: 4},
		containers,
	}, got.Conditions)

	home.Status.Conditions[1].Status = "True"
	got = Status(Seen{Home: home, Remote: remotePod(corev1.PodRunning, there)})
	assert.Equal(t, corev1.ConditionTrue, got.Conditions[2].Status, "ready once the gate is open")
}

func TestOnlyWhatAKubeletKnowsCrossesAsACondition(t *testing.T) {
	disrupted := condition(corev1.DisruptionTarget, "True")
	for name, test := range map[string]struct {
		home, there, want []corev1.PodCondition
	}{
		"what a controller of home says stays": {
			home:  []corev1.PodCondition{condition("example.com/checked", "True"), condition(corev1.PodReady, "False")},
			there: []corev1.PodCondition{condition(corev1.PodReady, "True")},
			want:  []corev1.PodCondition{condition("example.com/checked", "True"), condition(corev1.PodReady, "True")},
		},
		"what a controller there says does not cross": {
			home:  []corev1.PodCondition{condition("example.com/checked", "False")},
			there: []corev1.PodCondition{condition("example.com/checked", "True"), condition("example.com/other", "True")},
			want:  []corev1.PodCondition{condition("example.com/checked", "False")},
		},
		"what the kubelet no longer says goes": {
			home: []corev1.PodCondition{condition(corev1.PodResizePending, "True"), condition(corev1.PodScheduled, "True")},
			want: []corev1.PodCondition{condition(corev1.PodScheduled, "True")},
		},
		"the order of home stays": {
			home:  []corev1.PodCondition{condition(corev1.PodReady, "True"), condition("example.com/checked", "True")},
			there: []corev1.PodCondition{condition(corev1.PodInitialized, "True"), condition(corev1.PodReady, "True")},
			want: []corev1.PodCondition{condition(corev1.PodReady, "True"), condition("example.com/checked", "True"),
				condition(corev1.PodInitialized, "True")},
		},
		"home disrupts it": {
			home:  []corev1.PodCondition{disrupted},
			there: []corev1.PodCondition{condition(corev1.DisruptionTarget, "False")},
			want:  []corev1.PodCondition{disrupted},
		},
		"it is disrupted there": {
			there: []corev1.PodCondition{disrupted},
			want:  []corev1.PodCondition{disrupted},
		},
	} {
		t.Run(name, func(t *testing.T) {
			home := homePod(func(p *corev1.Pod) { p.Status.Conditions = test.home })
			got := Status(Seen{Home: home, Remote: remotePod(corev1.PodRunning, func(p *corev1.Pod) { p.Status.Conditions = test.there })})
			assert.Equal(t, test.want, got.Conditions)
		})
	}
}

func TestAddressesCrossOnlyBetweenRoutedNetworks(t *testing.T) {
	for name, test := range map[string]struct {
		network v1alpha1.PodNetwork
		ips     []string
		want    []string
		had     []string // by the home pod
		unknown bool     // no ranges are known
	}{
		"isolated":          {network: v1alpha1.Isolated, ips: []string{"10.1.0.1"}},
		"routed":            {network: v1alpha1.Routed, ips: []string{"10.1.0.1"}, want: []string{"10.1.0.1"}},
		"both families":     {network: v1alpha1.Routed, ips: []string{"10.1.0.1", "fd00::1"}, want: []string{"10.1.0.1", "fd00::1"}},
		"two of one family": {network: v1alpha1.Routed, ips: []string{"10.1.0.1", "10.1.0.2"}, want: []string{"10.1.0.1"}},
		"one of home's":     {network: v1alpha1.Routed, ips: []string{"10.0.0.7"}, had: []string{"10.0.0.7"}},
		"one of home's before its own": {network: v1alpha1.Routed, ips: []string{"10.0.0.7", "10.1.0.1", "fd01::1"},
			want: []string{"10.1.0.1"}},
		"ranges that are not known": {network: v1alpha1.Routed, unknown: true, ips: []string{"10.1.0.1"}},
		"what it had while they are not known": {network: v1alpha1.Routed, unknown: true, ips: []string{"10.1.0.1"}, had: []string{"10.1.0.1"},
			want: []string{"10.1.0.1"}},
		"another while they are not known":     {network: v1alpha1.Routed, unknown: true, ips: []string{"10.1.0.2"}, had: []string{"10.1.0.1"}},
		"none any more while they are unknown": {network: v1alpha1.Routed, unknown: true, had: []string{"10.1.0.1"}},
		"addresses of no pod": {network: v1alpha1.Routed, ips: []string{"127.0.0.1", "0.0.0.0", "169.254.169.254", "224.0.0.1", "::1",
			"fe80::1%eth0", "::ffff:127.0.0.1"}},
		"what is no address":       {network: v1alpha1.Routed, ips: []string{"db.shop", ""}},
		"a network without a word": {network: "", ips: []string{"10.1.0.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			home, ranges := homePod(), remotecluster.PodRanges(nil)
			addressed(test.had...)(home)
			if !test.unknown {
				var err error
				ranges, err = remotecluster.ParsePodRanges([]string{"10.1.0.0/16", "fd00::/64"})
				require.NoError(t, err)
			}
			got := Status(Seen{Home: home, Remote: remotePod(corev1.PodRunning, addressed(test.ips...)), Network: test.network, Ranges: ranges,
				HostIP: "10.9.0.1"})
			var ips []string
			for _, ip := range got.PodIPs {
				ips = append(ips, ip.IP)
			}
			assert.Equal(t, test.want, ips)
			if len(ips) > 0 {
				assert.Equal(t, ips[0], got.PodIP)
			} else {
				assert.Empty(t, got.PodIP)
			}
			assert.Equal(t, "10.9.0.1", got.HostIP)
			assert.Equal(t, []corev1.HostIP{{IP: "10.9.0.1"}}, got.HostIPs)
		})
	}
}

func TestNothingElseCrosses(t *testing.T) {
	long := strings.Repeat("ä", 100_000)
	remote := remotePod(corev1.PodFailed, func(p *corev1.Pod) {
		p.Status.Reason, p.Status.Message, p.Status.NominatedNodeName = long, long, "home-1"
		p.Status.QOSClass = corev1.PodQOSGuaranteed
		p.Status.Conditions = make([]corev1.PodCondition, 1000)
		for i := range p.Status.Conditions {
			p.Status.Conditions[i] = corev1.PodCondition{Type: corev1.PodConditionType("c" + strings.Repeat("x", i%200)), Status: "True",
				Message: long}
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "app", RestartCount: -5, ContainerID: long,
				State:              corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: long, Message: long}},
				Resources:          &corev1.ResourceRequirements{Requests: corev1.ResourceList{"example.com/gpu": resource.MustParse("9")}},
				AllocatedResources: corev1.ResourceList{"example.com/gpu": resource.MustParse("9")}, User: &corev1.ContainerUser{}},
			{Name: "other"}, {Name: "app", RestartCount: 7},
		}
		p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "debug"}}
		p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu"}}
	})
	home := homePod(func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBestEffort })
	before := home.DeepCopy()
	got := Status(Seen{Home: home, Remote: remote})
	assert.Equal(t, before, home, "the home pod is not changed")
	assert.Equal(t, corev1.PodQOSBestEffort, got.QOSClass)
	assert.Empty(t, got.NominatedNodeName)
	assert.Empty(t, got.EphemeralContainerStatuses)
	assert.Empty(t, got.ResourceClaimStatuses)
	if assert.Len(t, got.ContainerStatuses, 1) {
		status := got.ContainerStatuses[0]
		assert.Zero(t, status.RestartCount)
		assert.Equal(t, &corev1.ResourceRequirements{}, status.Resources, "the pod asks for nothing")
		assert.Empty(t, status.AllocatedResources)
		assert.Nil(t, status.User)
		assert.LessOrEqual(t, len(status.State.Waiting.Reason), maxReason)
	}
	assert.LessOrEqual(t, got.Size(), 200<<10)
}

func TestContainersThatEndedForGoodStayEnded(t *testing.T) {
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.Unix(5, 0)}}
	}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(9, 0)}}
	for name, test := range map[string]struct {
		policy corev1.RestartPolicy
		was    corev1.ContainerState
		want   corev1.ContainerState
		count  int32
	}{
		"always restarted":               {policy: corev1.RestartPolicyAlways, was: ended(0), want: runs, count: 5},
		"failed and restarted":           {policy: corev1.RestartPolicyOnFailure, was: ended(1), want: runs, count: 5},
		"done, in a pod that was remade": {policy: corev1.RestartPolicyOnFailure, was: ended(0), want: ended(0)},
		"never restarted":                {policy: corev1.RestartPolicyNever, was: ended(1), want: ended(1)},
		"it ran":                         {policy: corev1.RestartPolicyNever, was: runs, want: runs, count: 5},
	} {
		t.Run(name, func(t *testing.T) {
			home := homePod(func(p *corev1.Pod) {
				p.Spec.RestartPolicy = test.policy
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: test.was}}
			})
			remote := remotePod(corev1.PodRunning, func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: runs, RestartCount: 3}}
			})
			got := Status(Seen{Home: home, Remote: remote, Restarts: 2})
			assert.Equal(t, []corev1.ContainerStatus{{Name: "app", State: test.want, RestartCount: test.count}}, got.ContainerStatuses)
		})
	}
}

func TestWhileThereIsNoPod(t *testing.T) {
	waiting := Status(Seen{Home: homePod(phased(corev1.PodPending)), Reason: "QuotaExceeded", Message: "no room"})
	assert.Equal(t, corev1.PodPending, waiting.Phase)
	assert.Equal(t, "QuotaExceeded", waiting.Reason)
	assert.Equal(t, "no room", waiting.Message)

	hostile := Status(Seen{Home: homePod(), Reason: "One\nword and more", Message: strings.Repeat("ä", 100_000)})
	assert.Equal(t, "Oneword", hostile.Reason)
	assert.LessOrEqual(t, len(hostile.Message), maxMessage)

	remade := Status(Seen{Home: homePod(phased(corev1.PodRunning), func(p *corev1.Pod) {
		p.Status.PodIP, p.Status.PodIPs = "10.1.0.1", []corev1.PodIP{{IP: "10.1.0.1"}}
		p.Status.Conditions = []corev1.PodCondition{condition(corev1.PodScheduled, "True"), condition(corev1.PodReady, "True")}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Ready: true}}
	})})
	assert.Equal(t, corev1.PodRunning, remade.Phase)
	assert.Equal(t, corev1.ConditionTrue, remade.Conditions[0].Status)
	assert.Equal(t, corev1.ConditionFalse, remade.Conditions[1].Status, "nothing is sent to a pod that is not there")
	assert.False(t, remade.ContainerStatuses[0].Ready)
	assert.Empty(t, remade.PodIPs)
}

func TestPodWithoutANodeThereSaysSo(t *testing.T) {
	got := Status(Seen{Home: homePod(phased(corev1.PodPending)), Remote: remotePod(corev1.PodPending, func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "False", Reason: "Unschedulable",
			Message: "0/2 nodes are available"}}
	})})
	assert.Equal(t, "Unschedulable", got.Reason)
	assert.Equal(t, "not scheduled in the remote cluster: 0/2 nodes are available", got.Message)
}

func TestAPodThatSomebodyThereMakesEndHasNotEndedByItself(t *testing.T) {
	leaving := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	runs := phased(corev1.PodRunning)
	task := func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }
	for name, test := range map[string]struct {
		home, remote *corev1.Pod
		want         corev1.PodPhase
	}{
		"it ended well":                    {homePod(runs), remotePod(corev1.PodSucceeded, leaving), corev1.PodRunning},
		"it failed":                        {homePod(runs), remotePod(corev1.PodFailed, leaving), corev1.PodRunning},
		"a task that is done":              {homePod(runs, task), remotePod(corev1.PodSucceeded, leaving), corev1.PodSucceeded},
		"a task that is not done":          {homePod(runs, task), remotePod(corev1.PodFailed, leaving), corev1.PodRunning},
		"home makes it end too":            {homePod(runs, leaving), remotePod(corev1.PodSucceeded, leaving), corev1.PodSucceeded},
		"it had ended before":              {homePod(phased(corev1.PodFailed)), remotePod(corev1.PodFailed, leaving), corev1.PodFailed},
		"it is being deleted and runs yet": {homePod(), remotePod(corev1.PodRunning, leaving), corev1.PodRunning},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, Status(Seen{Home: test.home, Remote: test.remote}).Phase)
		})
	}
}
