package untrusted

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func spoil(t *testing.T, text string) string {
	t.Helper()
	all, err := io.ReadAll(&numbers{reader: strings.NewReader(text)})
	require.NoError(t, err)
	bytewise, err := io.ReadAll(&numbers{reader: iotest.OneByteReader(strings.NewReader(text))})
	require.NoError(t, err)
	assert.Equal(t, string(all), string(bytewise), "whatever comes at once")
	return string(all)
}

func TestNumbersLeavesAsItIs(t *testing.T) {
	for _, text := range []string{
		`{"storage":"1Gi"}`, `"1.5Gi"`, `"1e3"`, `"1E-9"`, `1e9999`, `"-100m"`, `"9223372036854775807"`,
		`"2026-01-02T03:04:05Z"`, `"6e1f2d3c-1234-5678-9e12-123456789012"`, `"pvc-12e345678"`, `"12e34567-89ab-4cde-8f01-234567890123"`,
		`"` + strings.Repeat("9", 70) + `x-1"`, `"sha256:12e3456789abcdef"`,
		`"resourceVersion":"123456789012"`, `"<b> & \u0026 \u003c \u003e \u2028 \\u0065"`, `"` + strings.Repeat("x1", 500) + `"`,
		`"-----BEGIN CERTIFICATE-----\nMIIC12e99999"`, `"ein Wort 1e5 und noch 1e6 und 12"`,
		`"1ce51261"`, `"12mie345678"`, `{"12e345678":1}`, `{"values":["12e345678", 12e345678]}`,
		`{"metadata":{"labels":{"lodestone.dev/home":"12e34567"},"name":"12e345678","ownerReferences":[{"uid":"1e999999"}]}}`,
		`{"items":[{"metadata":{"a\"b":"1e999999"}},{"metadata":{"name":"1e999999"}}],"spec":{"home":{"cluster":"12e34567"}}}`,
	} {
		assert.Equal(t, text, spoil(t, text))
	}
}

func TestNumbersSpoilsWhatTakesForEver(t *testing.T) {
	for text, want := range map[string]string{
		`"1e1000000000"`:                      `"1e1000_00000"`,
		`1E+99999`:                            `1E+9999_`,
		`"-1.5e-1000000"`:                     `"-1.5e-1000_00"`,
		`"` + strings.Repeat("9", 70) + `"`:   `"` + strings.Repeat("9", 64) + `_99999"`,
		`"1\u0065999999999"`:                  `"1\u006x999999999"`,
		`"\u0031e999"`:                        `"\u003xe999"`,
		`12e345678 9`:                         `12e3456_8 9`,
		`"` + strings.Repeat("9", 70) + `Gi"`: `"` + strings.Repeat("9", 64) + `_99999Gi"`,
		// Nobody's key makes a quantity plain, nor does what only looks like a plain one.
		`{"requests":{"metadata":"1e99999"}}`:                                   `{"requests":{"metadata":"1e9999_"}}`,
		`{"metadata":{"a":"}"},"limits":[{"max":{"labels":1e99999}}]}`:          `{"metadata":{"a":"}"},"limits":[{"max":{"labels":1e9999_}}]}`,
		`{"a metadata":{"b":"1e99999"},"x\u006d":{"metadata\"":{"c":1e99999}}}`: `{"a metadata":{"b":"1e9999_"},"x\u006d":{"metadata\"":{"c":1e9999_}}}`,
		`{"metadata":{}, "metadata` + `x":{"b":"1e99999"}}`:                     `{"metadata":{}, "metadatax":{"b":"1e9999_"}}`,
		`[{"metadata":1,"capacity":{"uid":"1e99999"}}]`:                         `[{"metadata":1,"capacity":{"uid":"1e9999_"}}]`,
	} {
		assert.Equal(t, want, spoil(t, text))
	}
}

// TestNoQuantityTakesLong reads claims as a client does: what would take minutes
// and gigabytes is an error at once.
func TestNoQuantityTakesLong(t *testing.T) {
	for _, size := range []string{
		`"1e1000000000"`, `"1234567890123456789012e1000000000"`, `"1234567890123456789012e-1000000000"`, `1e1000000000`,
		`"1234567890123456789012\u00651000000000"`, `"` + strings.Repeat("123", 1_000_000) + `Gi"`,
	} {
		var claim corev1.PersistentVolumeClaim
		err := json.NewDecoder(&numbers{reader: strings.NewReader(`{"spec":{"resources":{"requests":{"storage":` + size + `}}}}`)}).Decode(&claim)
		assert.Error(t, err, "%.40s", size)
	}
}

func FuzzNumbers(f *testing.F) {
	f.Add(`{"a":"1e1000000000"}`)
	f.Add(`{"a":1e10000, "b":"\u0031"}`)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := io.ReadAll(&numbers{reader: strings.NewReader(text)})
		require.NoError(t, err)
		assert.Len(t, all, len(text))
	})
}

// TestIdentitiesArriveAsTheyAre reads what names a home cluster, whatever digits it has.
func TestIdentitiesArriveAsTheyAre(t *testing.T) {
	for _, id := range []string{"1ce51261", "12e34567", "1e999999", "00000e00", "1e123456"} {
		claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: id, UID: types.UID(id), ResourceVersion: "7",
			Labels: map[string]string{"lodestone.dev/home": id, id: id}}}
		text, err := json.Marshal(claim)
		require.NoError(t, err)
		assert.JSONEq(t, string(text), spoil(t, string(text)))
	}
}

// BenchmarkNumbers shows that reading costs little beside decoding.
func BenchmarkNumbers(b *testing.B) {
	data, err := json.Marshal(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{StorageClassName: "standard",
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.dev", VolumeHandle: "12e34567-89ab-4cde-8f01-234567890123"}}}})
	require.NoError(b, err)
	text := strings.Repeat(string(data), 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		_, err := io.Copy(io.Discard, &numbers{reader: strings.NewReader(text)})
		require.NoError(b, err)
	}
}

// TestALongAnswerIsReadInTheSameMemory: a reader needs memory once, not anew for each part of what it reads.
func TestALongAnswerIsReadInTheSameMemory(t *testing.T) {
	text := strings.Repeat(`{"name":"a-claim","storage":"1Gi"}`, 30_000)
	reader := &numbers{reader: strings.NewReader(text)}
	part := make([]byte, 4<<10)
	read := func() {
		_, err := reader.Read(part)
		require.NoError(t, err)
	}
	for range 64 {
		read()
	}
	assert.Less(t, testing.AllocsPerRun(100, read), 0.5)
}
