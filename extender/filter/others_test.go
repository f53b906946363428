package filter_test

import (
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// markedClass is a real class of home with this annotation.
func markedClass(mark string) func(*snapshot.Snapshot) {
	return func(v *snapshot.Snapshot) {
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "disk.example.com"}
		if mark != "" {
			class.Annotations = map[string]string{keys.UsableIn: mark}
		}
		v.StorageClasses().Set("fast", class)
	}
}

func TestClaimsThatAreNotVirtual(t *testing.T) {
	stays := remotes(filter.ClaimStaysHome)
	onlyWest := map[string]filter.Reason{"east": filter.ClaimStaysHome}
	of := func(class, mark string) snapshot.Claim { return snapshot.Claim{ClassName: class, Mark: mark} }
	none := snapshot.Volume{}
	closed := func(v *snapshot.Snapshot) { v.Namespaces.Set("app", nil) }
	for name, test := range map[string]row{
		"without a volume it keeps the pod at home": {pod: pod("data"), change: want("data", of("fast", "")), refused: stays},
		"with a volume too":                         {pod: pod("data"), change: bind("data", of("fast", ""), none), refused: stays},
		"of a class that is not known yet":          {pod: pod("data"), change: want("data", of("later", "")), refused: stays},
		"without class and volume": {pod: pod("data"), change: func(v *snapshot.Snapshot) {
			v.Claims.Set("app/data", &snapshot.Claim{UID: "data"})
		}, refused: stays},
		"with a volume that is not known yet": {pod: pod("data"), change: func(v *snapshot.Snapshot) {
			v.Claims.Set("app/data", &snapshot.Claim{UID: "data", ClassName: "fast", VolumeName: "pv-real"})
		}, refused: stays},
		"with a volume by hand, of a virtual class": {pod: pod("data"), change: bind("data", of("lodestone", ""), none), refused: stays},
		"beside a virtual one":                      {pod: pod("unbound", "data"), change: want("data", of("fast", "")), refused: stays},
		"beside data in west, no node is left": {pod: pod("in-west", "data"), change: want("data", of("fast", "")),
			refused: merged(outside("west", filter.DataElsewhere), map[string]filter.Reason{"west": filter.ClaimStaysHome})},
		"the namespace comes first": {pod: pod("data"), change: all(want("data", of("fast", "")), closed),
			refused: remotes(filter.NotOffloaded)},

		"its mark lists a cluster":        {pod: pod("data"), change: want("data", of("fast", "west")), refused: onlyWest},
		"its mark lists several":          {pod: pod("data"), change: want("data", of("fast", " east , west"))},
		"its mark means all":              {pod: pod("data"), change: bind("data", of("fast", "*"), none)},
		"its mark lists a part of a name": {pod: pod("data"), change: want("data", of("fast", "we,west-2")), refused: stays},
		"the mark of its volume counts": {pod: pod("data"), change: bind("data", of("fast", ""), snapshot.Volume{Mark: "west"}),
			refused: onlyWest},
		"the mark of its class counts": {pod: pod("data"), change: all(markedClass("west"), want("data", of("fast", ""))),
			refused: onlyWest},
		"the class of a volume counts too": {pod: pod("data"), change: all(markedClass("*"), bind("data", of("fast", ""), none))},
		"a class without mark":             {pod: pod("data"), change: all(markedClass(""), want("data", of("fast", ""))), refused: stays},
		"a mark that is too long is none": {pod: pod("data"), refused: stays,
			change: all(markedClass(strings.Repeat("west,", 1000)), want("data", of("fast", "")))},
		"marks of different objects add up": {pod: pod("data"), change: all(markedClass("east"), want("data", of("fast", "west")))},
		"each claim needs a mark": {pod: pod("one", "two"), refused: onlyWest,
			change: all(want("one", of("fast", "*")), want("two", of("fast", "west")))},
		"a mark on a virtual claim is no rule": {pod: pod("data"), change: want("data", of("lodestone", "west"))},
		"without remote clusters there is no rule": {pod: pod("data"), indifferent: true, change: all(want("data", of("fast", "")),
			func(v *snapshot.Snapshot) {
				v.Clusters.Replace(nil)
				v.Nodes.Delete("west")
				v.Nodes.Delete("east")
			})},
	} {
		t.Run(name, test.check)
	}
}
