package filter_test

import (
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// kube-scheduler counts a claim without volume against the driver of its virtual
// class. The extender counts the volume that home's driver will make for it.
func TestANodeTakesNoMoreVolumesThanItsDriverCanAttach(t *testing.T) {
	limit := func(node string, volumes int) func(*snapshot.Snapshot) {
		return func(v *snapshot.Snapshot) { v.Limits.Set(node, snapshot.Limits{"disk": volumes, "other": 1}) }
	}
	// runs has a pod run on home-1 with these claims.
	runs := func(name string, claims ...string) func(*snapshot.Snapshot) {
		return func(v *snapshot.Snapshot) {
			use := snapshot.Use{Node: "home-1"}
			for _, claim := range claims {
				use.Claims = append(use.Claims, "app/"+claim)
			}
			v.Assigned.Set("app/"+name, use)
		}
	}
	disk := snapshot.Volume{Driver: "disk", Cluster: keys.Home}
	has := func(claim string) func(*snapshot.Snapshot) { return bind(claim, snapshot.Claim{}, disk) }
	comes := func(claim string) func(*snapshot.Snapshot) {
		return func(v *snapshot.Snapshot) {
			v.ClaimStore(clock).Set("app/"+claim, &snapshot.Claim{UID: claim, ClassName: "lodestone", SelectedNode: "home-1"})
		}
	}
	full := map[string]filter.Reason{"home-1": filter.AttachLimit}
	for name, test := range map[string]row{
		"a node with room":                {pod: pod("unbound"), change: all(limit("home-1", 2), has("a"), runs("one", "a"))},
		"a node that is full":             {pod: pod("unbound"), change: all(limit("home-1", 1), has("a"), runs("one", "a")), refused: full},
		"a node that can attach none":     {pod: pod("unbound"), change: limit("home-1", 0), refused: full},
		"a limit of another driver":       {pod: pod("unbound"), change: all(func(v *snapshot.Snapshot) { v.Limits.Set("home-1", snapshot.Limits{"other": 0}) }, has("a"), runs("one", "a"))},
		"volumes of another driver":       {pod: pod("unbound"), change: all(limit("home-1", 1), bind("a", snapshot.Claim{}, snapshot.Volume{Driver: "other"}), runs("one", "a"))},
		"volumes of no driver":            {pod: pod("unbound"), change: all(limit("home-1", 1), bind("a", snapshot.Claim{}, snapshot.Volume{}), runs("one", "a"))},
		"volumes in remote clusters":      {pod: pod("unbound"), change: all(limit("home-1", 1), bind("a", snapshot.Claim{}, snapshot.Volume{Driver: keys.Driver, Cluster: "west"}), runs("one", "a"))},
		"two claims, room for one":        {pod: pod("unbound", "more"), change: all(limit("home-1", 1), want("more", snapshot.Claim{})), refused: full},
		"a volume that pods share is one": {pod: pod("unbound"), change: all(limit("home-1", 2), has("a"), runs("one", "a"), runs("two", "a"))},
		"a pod that ended":                {pod: pod("unbound"), change: all(limit("home-1", 1), has("a"), runs("one", "a"), func(v *snapshot.Snapshot) { v.Assigned.Delete("app/one") })},
		"a volume that is being made":     {pod: pod("unbound"), change: all(limit("home-1", 1), comes("a")), refused: full},
		"… for a claim of so long a time that it counts no more": {pod: pod("unbound"), change: all(limit("home-1", 1), func(v *snapshot.Snapshot) {
			v.ClaimStore(func() time.Time { return now.Add(-time.Minute) }).Set("app/a", &snapshot.Claim{UID: "a", ClassName: "lodestone", SelectedNode: "home-1"})
		})},
		"… and was made":                   {pod: pod("unbound"), change: all(limit("home-1", 1), comes("a"), func(v *snapshot.Snapshot) { v.ClaimStore(clock).Delete("app/a") })},
		"the pod's own claim is under way": {pod: pod("a"), change: all(limit("home-1", 1), comes("a"))},
		"the pod's own volume is there":    {pod: pod("unbound", "a"), change: all(limit("home-1", 2), has("a"), runs("one", "a")), refused: remotes(filter.DataElsewhere)},
		"the pod's own volume comes along": {pod: pod("unbound", "a"), change: all(limit("home-1", 1), has("a")), refused: merged(remotes(filter.DataElsewhere), full)},
		"a claim of a pod is not known":    {pod: pod("unbound"), change: all(limit("home-1", 1), runs("one", "later"))},
		"the volume of one is not known":   {pod: pod("unbound"), change: all(limit("home-1", 1), runs("one", "thief"), func(v *snapshot.Snapshot) { v.Claims.Set("app/thief", &snapshot.Claim{UID: "thief", VolumeName: "pv"}) })},
		"a pod whose claims are all bound": {pod: pod("b"), change: all(limit("home-1", 0), has("b")), refused: remotes(filter.DataElsewhere)},
		"a claim of a real class under way": {pod: pod("unbound"), change: all(limit("home-1", 1), func(v *snapshot.Snapshot) {
			v.ClaimStore(clock).Set("app/a", &snapshot.Claim{UID: "a", ClassName: "disk", SelectedNode: "home-1"})
		}), refused: full},
		"a class of another driver": {pod: pod("unbound"), change: all(limit("home-1", 0), func(v *snapshot.Snapshot) {
			v.Classes.Set("lodestone", class(map[string]string{keys.LocalClass: "nfs"}))
		})},
		"no class that could make the volume": {pod: pod("unbound"), change: all(limit("home-1", 0), func(v *snapshot.Snapshot) {
			v.StorageClasses().Delete("disk")
		})},
	} {
		t.Run(name, func(t *testing.T) {
			test.change = all(realClasses, test.change)
			test.check(t)
		})
	}
}

func clock() time.Time { return now }

// realClasses stores the default class "disk" of driver disk, and "nfs" of
// another driver.
func realClasses(v *snapshot.Snapshot) {
	v.StorageClasses().Set("nfs", &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "nfs"}, Provisioner: "nfs"})
	v.StorageClasses().Set("disk", &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "disk", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "disk",
	})
}

// What became known of a node's volumes is kept; what changes counts at once.
func TestAttachedVolumesAreCountedAnewWhenPodsComeAndGo(t *testing.T) {
	view := world()
	all(realClasses, bind("a", snapshot.Claim{}, snapshot.Volume{Driver: "disk"}), bind("b", snapshot.Claim{}, snapshot.Volume{Driver: "disk"}))(view)
	view.Limits.Set("home-1", snapshot.Limits{"disk": 2})
	for _, step := range []struct {
		what   string
		change func()
		want   filter.Reason
	}{
		{what: "two pods with a volume each", change: func() {
			view.Assigned.Set("app/one", snapshot.Use{Node: "home-1", Claims: []string{"app/a"}})
			view.Assigned.Set("app/two", snapshot.Use{Node: "home-1", Claims: []string{"app/b"}})
		}, want: filter.AttachLimit},
		{what: "nothing changes", change: func() {}, want: filter.AttachLimit},
		{what: "one moves to another node", change: func() {
			view.Assigned.Set("app/two", snapshot.Use{Node: "home-2", Claims: []string{"app/b"}})
		}, want: filter.Accepted},
		{what: "another pod comes with a claim that is not known yet", change: func() {
			view.Assigned.Set("app/three", snapshot.Use{Node: "home-1", Claims: []string{"app/late"}})
		}, want: filter.Accepted},
		{what: "the claim becomes known", change: func() {
			bind("late", snapshot.Claim{}, snapshot.Volume{Driver: "disk"})(view)
		}, want: filter.AttachLimit},
		{what: "the node gets a larger limit", change: func() { view.Limits.Set("home-1", snapshot.Limits{"disk": 3}) }, want: filter.Accepted},
	} {
		step.change()
		if got := filter.NewPlan(view, pod("unbound"), now).Judge(nodeOf(view, "home-1")); got != step.want {
			t.Errorf("%s: got %s, want %s", step.what, got, step.want)
		}
	}
}
