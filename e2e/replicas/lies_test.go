package replicas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// lie alters an object of west, as home is to see it. It returns whether it did.
type lie func(object *unstructured.Unstructured) bool

// liar stands for a west that answers the provisioner's reads with lies; what is written to it is carried out.
type liar struct {
	mu sync.Mutex
	// lies are those that are told now, by resource. told is how many objects were altered since they are.
	lies map[string]lie
	told int
}

// lies puts a liar between home and west until the test ends.
func lies(t *testing.T) *liar {
	t.Helper()
	l := &liar{}
	f := startFronts(t, func(_ string, proxy *httputil.ReverseProxy) http.Handler {
		rewrite := proxy.Rewrite
		proxy.Rewrite = func(r *httputil.ProxyRequest) {
			rewrite(r)
			// It comes in plain text.
			r.Out.Header.Del("Accept-Encoding")
		}
		proxy.ModifyResponse = l.alter
		return proxy
	})
	direct := f.leadHome(t)
	t.Cleanup(direct)
	return l
}

// tells has it tell these lies, and no others, from now on.
func (l *liar) tells(all map[string]lie) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lies, l.told = all, 0
}

// hasTold is how many objects it has altered.
func (l *liar) hasTold() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told
}

// alter implements httputil.ReverseProxy.ModifyResponse.
func (l *liar) alter(response *http.Response) error {
	request := response.Request
	if request.Method != http.MethodGet || response.StatusCode != http.StatusOK || request.URL.Query().Get("watch") != "" ||
		!strings.HasPrefix(request.UserAgent(), "lodestone-provisioner") {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for resource, alters := range l.lies {
		if !strings.Contains(request.URL.Path+"/", "/"+resource+"/") {
			continue
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		var object unstructured.Unstructured
		if err := json.Unmarshal(body, &object.Object); err != nil {
			return err
		}
		if items, ok := object.Object["items"].([]any); ok {
			for i := range items {
				item := &unstructured.Unstructured{Object: items[i].(map[string]any)}
				l.note(alters(item))
				items[i] = item.Object
			}
		} else {
			l.note(alters(&object))
		}
		if body, err = json.Marshal(object.Object); err != nil {
			return err
		}
		response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	return nil
}

func (l *liar) note(altered bool) {
	if altered {
		l.told++
	}
}

// sets is the lie that a field has another value.
func sets(field string, value any) lie {
	return func(object *unstructured.Unstructured) bool {
		return unstructured.SetNestedField(object.Object, value, strings.Split(field, ".")...) == nil
	}
}

// labelled tells a lie of those objects alone that have a label.
func labelled(label, value string, alters lie) lie {
	return func(object *unstructured.Unstructured) bool {
		return object.GetLabels()[label] == value && alters(object)
	}
}

// looks has home look at a replica, by a change that has no effect, until it is as is wanted.
func looks(t *testing.T, what string, made *v1alpha1.VolumeReplica, is func(*v1alpha1.VolumeReplica) bool) *v1alpha1.VolumeReplica {
	t.Helper()
	last, n := time.Time{}, 0
	return until(t, what, made, func(now *v1alpha1.VolumeReplica) bool {
		if time.Since(last) > time.Second {
			last, n = time.Now(), n+1
			must.Patch(t, objects(t).Replicas(made.Namespace), made.Name, types.MergePatchType,
				fmt.Appendf(nil, `{"spec":{"versions":{"keep":%d}}}`, 8+n%2))
		}
		return is(now)
	})
}

// unhealthy says whether a replica says of something that it is wrong.
func unhealthy(now *v1alpha1.VolumeReplica, reason, text string) bool {
	healthy := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ReplicaHealthy)
	return healthy != nil && healthy.Status == metav1.ConditionFalse && healthy.Reason == reason && strings.Contains(healthy.Message, text)
}

// TestAStandbyThatLiesIsNotBelieved has west say of versions, of heads and of movers what is not so. What is sealed, and of when, says
// home's own record, and no claim gets a version that is not as it was sealed.
func TestAStandbyThatLiesIsNotBelieved(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	l := lies(t)
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	counts(t, namespace, virtual, keys.Home)
	made := replicate(t, namespace, "west", func(r *v1alpha1.VolumeReplica) { r.Spec.Versions.Keep = 8 })
	rpo := func(of string) {
		t.Helper()
		must.Patch(t, objects(t).Replicas(namespace), made.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"rpo":%q}}`, of))
	}
	// rests has points be made seldom, and returns the replica once none is being made.
	rests := func() *v1alpha1.VolumeReplica {
		t.Helper()
		rpo("1h")
		return looks(t, "no point is made", made, func(now *v1alpha1.VolumeReplica) bool {
			return now.Status.Standbys[0].Point == "" && meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ReplicaHealthy)
		})
	}
	ours := func(alters lie) lie { return labelled(keys.ReplicaOf, string(made.UID), alters) }
	sealed(t, made, sealed(t, made, time.Time{}).Status.Standbys[0].Sealed.Time)

	t.Run("what versions say of themselves, and when", func(t *testing.T) {
		truth := rests()
		l.tells(map[string]lie{"volumesnapshots": ours(func(object *unstructured.Unstructured) bool {
			seal, err := volumesnapshot.DecodeSeal(object.GetAnnotations()[keys.Seal])
			if err != nil {
				return false
			}
			seal.Name, seal.Number, seal.Cut, seal.Root = "other", 99, seal.Cut.AddDate(100, 0, 0), "of-something-else"
			text, err := seal.Encode()
			object.SetAnnotations(map[string]string{keys.Seal: text})
			const far = "2126-01-01T00:00:00Z"
			return err == nil && sets("metadata.creationTimestamp", far)(object) && sets("status.creationTime", far)(object)
		})})
		now := looks(t, "it is told", made, func(*v1alpha1.VolumeReplica) bool { return l.hasTold() > 6 })
		assert.Equal(t, truth.Status.Standbys[0].Versions, now.Status.Standbys[0].Versions)
		assert.True(t, meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ReplicaWithinRPO), "%v", now.Status.Conditions)
		rpo("10s")
		now = sealed(t, made, truth.Status.Standbys[0].Sealed.Time)
		assert.True(t, now.Status.Standbys[0].Sealed.Time.Before(time.Now()), "a point is of the moment at which home asked for it")
		l.tells(nil)
	})

	const another = "0f7b153b-0000-4d9d-9d0e-f64b2f68c8bb"
	for n, row := range []struct {
		what, resource string
		lie            lie
		// refusal is what a failover says that is refused, and says is what the replica says then.
		refusal, says string
		// deleted says that it is taken for that, which is for good.
		deleted bool
	}{
		{"it is ready, though its content is not", "volumesnapshotcontents", sets("status.readyToUse", false),
			"cannot be used: it says that it is ready, and its VolumeSnapshotContent does not",
			": its VolumeSnapshotContent is not ready", false},
		{"it has the content of another volume", "volumesnapshotcontents", sets("spec.source.volumeHandle", another),
			"is of another volume: see who made it", " is not its own: see who made it", false},
		{"it has the content of another snapshot", "volumesnapshotcontents", sets("spec.volumeSnapshotRef.uid", another),
			"is not its own: see who made it", " is not its own: see who made it", false},
		{"it is another one of its name", "volumesnapshots", sets("metadata.uid", another),
			"is there already and is not a version of this replica: remove it there",
			fmt.Sprintf("somebody deleted VolumeSnapshot %s/", namespace), true},
	} {
		t.Run(row.what, func(t *testing.T) {
			newest := newestOf(rests())
			refuses := func(n int, text string) {
				t.Helper()
				over := inPhase(t, failOver(t, fmt.Sprintf("refused-%d", n), made, newest, v1alpha1.FenceProven), v1alpha1.MoveFailed)
				assert.Contains(t, over.Status.Message, text)
				assert.Contains(t, folder(t, namespace), homeDriver, "the claim has what it had")
			}
			l.tells(map[string]lie{row.resource: func(object *unstructured.Unstructured) bool {
				of, _, _ := unstructured.NestedString(object.Object, "spec", "volumeSnapshotRef", "name")
				return (of == newest || object.GetName() == newest) && row.lie(object)
			}})
			refuses(2*n, row.refusal)
			looks(t, "it counts no more", made, func(now *v1alpha1.VolumeReplica) bool { return newestOf(now) != newest })
			told(t, namespace, made.Name, row.says)
			refuses(2*n+1, fmt.Sprintf("has no version %q", newest))
			l.tells(nil)
			now := rests()
			assert.Equal(t, row.deleted, newestOf(now) != newest, "%v", now.Status.Standbys[0].Versions)
		})
	}

	for _, row := range []struct {
		what string
		lies map[string]lie
		// until is when the lie has had its effect.
		until func(*v1alpha1.VolumeReplica) bool
	}{
		{"all is ready, though no content is", map[string]lie{"volumesnapshotcontents": sets("status.readyToUse", false)},
			func(now *v1alpha1.VolumeReplica) bool {
				within := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ReplicaWithinRPO)
				return newestOf(now) == "" && within.Status == metav1.ConditionUnknown &&
					strings.HasSuffix(now.Status.Standbys[0].Point, ": "+string(record.Seal))
			}},
		{"the head is another claim of its name", map[string]lie{"persistentvolumeclaims": ours(sets("metadata.uid", another))},
			func(now *v1alpha1.VolumeReplica) bool {
				return unhealthy(now, "PointFailed", "is at the standby already and is not this replica's: remove it there")
			}},
		{"movers have failed", map[string]lie{
			"pods":       labelled(keys.MoveOf, string(made.UID), sets("status.phase", "Failed")),
			"shadowpods": labelled(keys.MoveOf, string(made.UID), sets("status.phase", "Lost")),
		}, func(*v1alpha1.VolumeReplica) bool { return l.hasTold() > 9 }},
	} {
		t.Run(row.what, func(t *testing.T) {
			before := rests()
			l.tells(row.lies)
			rpo("10s")
			now := looks(t, "home has heard it", made, row.until)
			if newestOf(now) != "" {
				assert.Equal(t, newestOf(before), newestOf(now), "nothing is sealed meanwhile")
			}
			l.tells(nil)
			now = sealed(t, made, before.Status.Standbys[0].Sealed.Time)
			assert.Positive(t, counted(t, contentOf(t, bed.West, westDriver, namespace, newestOf(now))))
		})
	}

	version := newestOf(rests())
	has := counted(t, contentOf(t, bed.West, westDriver, namespace, version))
	over := inPhase(t, failOver(t, "over", made, version, v1alpha1.FenceProven), v1alpha1.MoveRetain)
	beyond(t, namespace, has)
	act(t, over, v1alpha1.ActionFinalize)
	inPhase(t, over, v1alpha1.MoveDone)
	removes(t, made)
}

// TestASlotThatSaysSomethingElseHasNoVersion has west say of the slot that has the newest version that it has another content.
func TestASlotThatSaysSomethingElseHasNoVersion(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	l := lies(t)
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	counts(t, namespace, virtual, keys.Home)
	made := replicate(t, namespace, "west", func(r *v1alpha1.VolumeReplica) {
		r.Spec.Standbys[0].ClassName, r.Spec.RPO.Duration = plainDriver, time.Hour
	})
	newest := newestOf(sealed(t, made, time.Time{}))
	l.tells(map[string]lie{"persistentvolumeclaims": labelled(keys.ReplicaOf, string(made.UID), func(object *unstructured.Unstructured) bool {
		seal, err := volumesnapshot.DecodeSeal(object.GetAnnotations()[keys.Seal])
		if err != nil {
			return false
		}
		seal.Root = "of-something-else"
		text, err := seal.Encode()
		return err == nil && sets("metadata.annotations", map[string]any{keys.Seal: text})(object)
	})})
	over := inPhase(t, failOver(t, "refused", made, newest, v1alpha1.FenceProven), v1alpha1.MoveFailed)
	assert.Contains(t, over.Status.Message, "does not say that it has the version of claim")
	looks(t, "it counts no more", made, func(now *v1alpha1.VolumeReplica) bool { return newestOf(now) == "" })
	told(t, namespace, made.Name, "does not say that it has the version that home knows")
	l.tells(nil)
	removes(t, made)
}

// newestOf is the newest version that counts; empty if none does.
func newestOf(now *v1alpha1.VolumeReplica) string {
	if len(now.Status.Standbys) == 0 || len(now.Status.Standbys[0].Versions) == 0 {
		return ""
	}
	return now.Status.Standbys[0].Versions[0].Name
}
