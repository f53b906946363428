package clients

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
)

// move returns an encoded VolumeMove.
func move(name, version, spec string) string {
	const format = `{"apiVersion":"lodestone.dev/v1alpha1","kind":"VolumeMove",` +
		`"metadata":{"name":%q,"namespace":"shop","resourceVersion":%q},"spec":{"target":{"cluster":"west"}%s}}`
	return fmt.Sprintf(format, name, version, spec)
}

// listOf is an encoded list, with its items.
const listOf = `{"apiVersion":"lodestone.dev/v1alpha1","kind":"VolumeMoveList","metadata":{"resourceVersion":"9"},"items":[%s]}`

// movesServer answers lists of a move that has spec and a good one, and sends events to who watches.
func movesServer(t *testing.T, spec string, events <-chan string) *VolumeMoveClient {
	t.Helper()
	bad, good := move("bad", "3", spec), move("good", "4", "")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = fmt.Fprintf(w, listOf, bad+","+good)
			return
		}
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}{"type":"ADDED","object":%s}`, bad, good)
			_, _ = fmt.Fprint(w, `{"type":"BOOKMARK","object":{"apiVersion":"lodestone.dev/v1alpha1","kind":"VolumeMove","metadata":{`+
				`"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
		}
		w.(http.Flusher).Flush()
		for {
			select {
			case event := <-events:
				_, _ = fmt.Fprint(w, event)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	client, err := NewVolumeMoveClient(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return client
}

func TestOneUnreadableObjectHidesNoOther(t *testing.T) {
	for _, spec := range []string{
		`,"keepSourceFor":"1d"`, `,"rollBackAfter":"soon"`, `,"bandwidthLimit":"1e99999999999999999999"`, `,"claims":"data"`,
	} {
		t.Run(spec, func(t *testing.T) {
			events := make(chan string)
			client := movesServer(t, spec, events)
			list, err := client.In("").List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			require.Len(t, list.Items, 1)
			assert.Equal(t, "good", list.Items[0].Name)
			assert.Equal(t, "9", list.ResourceVersion)

			informer := NewVolumeMoveInformer(client)
			go informer.RunWithContext(t.Context())
			has := func(names ...string) {
				t.Helper()
				require.EventuallyWithT(t, func(t *assert.CollectT) {
					var have []string
					for known := range controller.Each[v1alpha1.VolumeMove](informer) {
						have = append(have, known.Name)
					}
					assert.ElementsMatch(t, names, have)
				}, 10*time.Second, 10*time.Millisecond)
			}
			happens := func(kind, move string) {
				t.Helper()
				select {
				case events <- fmt.Sprintf(`{"type":%q,"object":%s}`, kind, move):
				case <-time.After(10 * time.Second):
					require.Fail(t, "nobody watches")
				}
			}
			has("good")
			happens("MODIFIED", move("bad", "10", spec))
			happens("ADDED", move("new", "11", ""))
			has("good", "new")
			happens("MODIFIED", move("new", "12", spec))
			has("good")
			happens("MODIFIED", move("bad", "13", ""))
			has("good", "bad")
		})
	}
}

func TestAListThatIsNoneIsAnError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, strings.ReplaceAll(listOf, "[%s]", `"none"`))
	}))
	t.Cleanup(server.Close)
	client, err := NewVolumeMoveClient(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	_, err = client.In("").List(t.Context(), metav1.ListOptions{})
	require.Error(t, err)
}
