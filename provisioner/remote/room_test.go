package remote

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

func class(name, free string) v1alpha1.OfferedClass {
	offered := v1alpha1.OfferedClass{Name: name, Provisioner: "disk.example.com"}
	if free != "" {
		offered.Free = ptr.To(resource.MustParse(free))
	}
	return offered
}

func TestRoomIsWrittenAnewOnlyWhereItHasChanged(t *testing.T) {
	const gi = 1 << 30
	for name, test := range map[string]struct {
		before string
		free   map[string]room
		want   string
	}{
		"it becomes known":                      {free: map[string]room{"fast": {free: 10 * gi}}, want: "10Gi"},
		"it is still unknown":                   {},
		"it is not known any more":              {before: "10Gi"},
		"it is known of another class":          {before: "10Gi", free: map[string]room{"slow": {free: gi}}},
		"it is as it was":                       {before: "10Gi", free: map[string]room{"fast": {free: 10 * gi}}, want: "10Gi"},
		"it has changed by less than 5 percent": {before: "100Gi", free: map[string]room{"fast": {free: 96 * gi}}, want: "100Gi"},
		"it has changed by 5 percent":           {before: "100Gi", free: map[string]room{"fast": {free: 95 * gi}}, want: "95Gi"},
		"it has grown by 5 percent":             {before: "100Gi", free: map[string]room{"fast": {free: 105 * gi}}, want: "105Gi"},
		"it is full":                            {before: "1Mi", free: map[string]room{"fast": {free: 0}}, want: "0"},
		"it is still full":                      {before: "0", free: map[string]room{"fast": {free: 0}}, want: "0"},
		"it is not full any more":               {before: "0", free: map[string]room{"fast": {free: 1}}, want: "1"},
		"it is more than can be written":        {free: map[string]room{"fast": {free: 1e30}}, want: "4Ei"},
	} {
		t.Run(name, func(t *testing.T) {
			offered := []v1alpha1.OfferedClass{class("fast", "")}
			withRoom(offered, test.free, []v1alpha1.OfferedClass{class("fast", test.before)})
			if test.want == "" {
				assert.Nil(t, offered[0].Free)
				return
			}
			require.NotNil(t, offered[0].Free)
			assert.InEpsilon(t, 1+ptr.To(resource.MustParse(test.want)).AsApproximateFloat64(), 1+offered[0].Free.AsApproximateFloat64(), 1e-9)
		})
	}
	offered := []v1alpha1.OfferedClass{class("fast", ""), class("new", "")}
	keepRoom(offered, []v1alpha1.OfferedClass{class("fast", "3Gi"), class("gone", "4Gi")})
	assert.Equal(t, []v1alpha1.OfferedClass{class("fast", "3Gi"), class("new", "")}, offered, "what is not read yet stays as it was")
}

// Waiting claims are queued again when the offer changes, but not for each change of free
// space.
func TestAnOfferIsTheSameWhateverRoomThereIs(t *testing.T) {
	assert.True(t, sameOffer([]v1alpha1.OfferedClass{class("fast", "1Gi")}, []v1alpha1.OfferedClass{class("fast", "")}))
	assert.False(t, sameOffer([]v1alpha1.OfferedClass{class("fast", "")}, []v1alpha1.OfferedClass{class("slow", "")}))
	assert.False(t, sameOffer([]v1alpha1.OfferedClass{class("fast", "")}, nil))
	assert.True(t, sameOffer(nil, []v1alpha1.OfferedClass{}))
}

func capacity(name, class string, free *resource.Quantity) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "driver", Name: name}, StorageClassName: class,
		Capacity: free}
}

func limited(capacity *storagev1.CSIStorageCapacity, largest string) *storagev1.CSIStorageCapacity {
	capacity.MaximumVolumeSize = ptr.To(resource.MustParse(largest))
	return capacity
}

func TestTheLargestVolumeIsWrittenAnewOnItsOwn(t *testing.T) {
	before := class("fast", "100Gi")
	before.MaximumVolumeSize = ptr.To(resource.MustParse("10Gi"))
	offered := []v1alpha1.OfferedClass{class("fast", "")}
	withRoom(offered, map[string]room{"fast": {free: 99 << 30, largest: 5 << 30}}, []v1alpha1.OfferedClass{before})
	assert.Equal(t, "100Gi", offered[0].Free.String())
	assert.Equal(t, "5Gi", offered[0].MaximumVolumeSize.String())
	offered = []v1alpha1.OfferedClass{class("fast", "")}
	withRoom(offered, map[string]room{"fast": {largest: 5 << 30, unmeasured: true}}, []v1alpha1.OfferedClass{before})
	assert.Nil(t, offered[0].Free, "nothing is told of it")
	assert.Equal(t, "5Gi", offered[0].MaximumVolumeSize.String())
	offered = []v1alpha1.OfferedClass{class("fast", "")}
	keepRoom(offered, []v1alpha1.OfferedClass{before})
	assert.Equal(t, []v1alpha1.OfferedClass{before}, offered)
}

func TestRoomIsTheSumOfWhatIsTold(t *testing.T) {
	client := fake.NewClientset(
		capacity("a", "fast", ptr.To(resource.MustParse("1Gi"))),
		capacity("b", "fast", ptr.To(resource.MustParse("2Gi"))),
		capacity("c", "fast", nil),
		capacity("d", "slow", nil),
		capacity("e", "none", ptr.To(resource.MustParse("-5"))),
		limited(capacity("f", "parts", ptr.To(resource.MustParse("9Gi"))), "3Gi"),
		limited(capacity("g", "parts", ptr.To(resource.MustParse("9Gi"))), "4Gi"),
		limited(capacity("h", "none", ptr.To(resource.MustParse("0"))), "-1Gi"),
		limited(capacity("i", "capped", nil), "5Gi"),
		limited(capacity("j", "capped", nil), "6Gi"),
		limited(capacity("k", "mixed", nil), "5Gi"),
		capacity("l", "mixed", ptr.To(resource.MustParse("1Gi"))),
		limited(capacity("m", "mixed", nil), "4Gi"),
	)
	c := connect(t.Context(), "west", client, "here", nil, nil, func() {})
	_, read := c.free()
	assert.False(t, read, "nobody watches it yet")
	c.watchRoom()
	c.watchRoom()
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), c.room.HasSynced))
	free, read := c.free()
	require.True(t, read)
	assert.Equal(t, map[string]room{
		"fast":   {free: 3 << 30, largest: 2 << 30},
		"parts":  {free: 18 << 30, largest: 4 << 30},
		"none":   {},
		"capped": {largest: 6 << 30, unmeasured: true},
		"mixed":  {free: 1 << 30, largest: 5 << 30},
	}, free)
	assert.False(t, math.Signbit(free["none"].free))
}

func TestRoomIsSeenOnlyWithBothRights(t *testing.T) {
	for name, test := range map[string]struct {
		allowed map[string]bool
		broken  bool
		want    bool
	}{
		"both":      {allowed: map[string]bool{"list": true, "watch": true}, want: true},
		"list only": {allowed: map[string]bool{"list": true}},
		"neither":   {},
		"not known": {broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
				create, ok := action.(clienttesting.CreateAction)
				require.True(t, ok)
				review, ok := create.GetObject().(*authorizationv1.SelfSubjectAccessReview)
				require.True(t, ok)
				assert.Equal(t, "csistoragecapacities", review.Spec.ResourceAttributes.Resource)
				if test.broken {
					return true, nil, errors.New("etcd is away")
				}
				review.Status.Allowed = test.allowed[review.Spec.ResourceAttributes.Verb]
				return true, review, nil
			})
			got, err := showsRoom(t.Context(), client)
			assert.Equal(t, test.want, got)
			assert.Equal(t, test.broken, err != nil)
		})
	}
}
