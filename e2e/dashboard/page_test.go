// Package dashboard tests the page of kubectl lodestone dashboard in a headless Chromium. It needs no
// control plane: e2e/plugin tests the command with one.
package dashboard

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/browser"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/dashboard"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/status"
)

func TestMain(m *testing.M) {
	if os.Getenv("LODESTONE_TESTBED") != "" {
		fmt.Println("the page needs no control plane: the unit tests test it")
		return
	}
	os.Exit(m.Run())
}

// serve serves the page with a status.
func serve(t *testing.T, shown status.Status) *dashboard.Server {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := dashboard.NewServer("home", listener)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	server.Show(shown, "")
	return server
}

// drawn opens the page and waits until all of it is drawn.
func drawn(t *testing.T, b *browser.Browser, server *dashboard.Server) *browser.Page {
	t.Helper()
	page := b.Tab(t)
	_ = page.Processor() // measured from now on
	page.Go(server.Address())
	await.Until(t, "the page is drawn", func() bool {
		require.Empty(t, b.Failed())
		return page.Is("document.body?.dataset.drawn === 'yes'")
	})
	return page
}

// shots is where pictures of the page are written to, empty for nowhere.
func shots() string { return os.Getenv("LODESTONE_SCREENSHOTS") }

func TestPicturesOfThePage(t *testing.T) {
	if shots() == "" {
		t.Skip("LODESTONE_SCREENSHOTS names no folder for pictures")
	}
	b := browser.Start(t)
	page := drawn(t, b, serve(t, shop()))
	for _, scheme := range []string{"light", "dark"} {
		page.Looks(1520, 1110, map[string]string{"prefers-color-scheme": scheme})
		page.Screenshot(filepath.Join(shots(), "page-"+scheme+".png"))
	}
	page.Looks(420, 1400, map[string]string{"prefers-color-scheme": "light"})
	page.Screenshot(filepath.Join(shots(), "page-narrow.png"))
	require.Empty(t, b.Failed())
}

// figures are what a page measures of itself while it scrolls from top to bottom.
type figures struct {
	Frames  int     `json:"frames"`
	Median  float64 `json:"median"`
	P95     float64 `json:"p95"`
	Longest float64 `json:"longest"`
	// Processor is how much of a processor the main thread took for each frame.
	Processor time.Duration `json:"-"`
}

func (f figures) String() string {
	return fmt.Sprintf("%d frames, one every %.1f ms (median; p95 %.1f, longest %.1f); %s of the main thread each", f.Frames, f.Median, f.P95,
		f.Longest, f.Processor.Round(10*time.Microsecond))
}

// scrolling takes a step in each of 150 frames.
const scrolling = `new Promise((done) => {
	const frames = [], step = Math.max(120, document.documentElement.scrollHeight / 150);
	let at = 0, last = performance.now();
	scrollTo(0, 0);
	requestAnimationFrame(function frame(now) {
		frames.push(now - last);
		last = now;
		at += step;
		scrollTo(0, at);
		if (frames.length < 150) return requestAnimationFrame(frame);
		const sorted = frames.slice(2).sort((a, b) => a - b), nth = (part) => sorted[Math.floor(part * (sorted.length - 1))];
		done({ frames: sorted.length, median: nth(0.5), p95: nth(0.95), longest: nth(1) });
	});
})`

func scroll(page *browser.Page) figures {
	var f figures
	before := page.Processor()
	page.Eval(scrolling, &f)
	f.Processor = (page.Processor() - before) / time.Duration(f.Frames)
	return f
}

// Nothing is asserted of times; they are in docs/dashboard.md. The yardstick is a page with a hundredth
// of the claims.
func TestThePageShows5000ClaimsAndStaysLight(t *testing.T) {
	const claims = 5000
	b := browser.Start(t)
	few := drawn(t, b, serve(t, many(claims/100)))
	few.Looks(1280, 1000, nil)
	t.Logf("%d claims, scrolled: %s", claims/100, scroll(few))

	server := serve(t, many(claims))
	begun := time.Now()
	page := drawn(t, b, server)
	page.Looks(1280, 1000, nil)
	t.Logf("%d claims and pods are drawn after %s, of which the main thread was on a processor for %s", claims,
		time.Since(begun).Round(time.Millisecond), page.Processor().Round(time.Millisecond))
	var loaded struct {
		Weight int `json:"weight"`
		Rows   int `json:"rows"`
	}
	page.Eval(`({ rows: document.querySelectorAll(".row").length,
		weight: [...performance.getEntriesByType("resource"), ...performance.getEntriesByType("navigation")]
			.filter((e) => !e.name.endsWith("/events")).reduce((sum, e) => sum + e.decodedBodySize, 0) })`, &loaded)
	t.Logf("the page weighs %d bytes", loaded.Weight)
	assert.Equal(t, claims, loaded.Rows)
	assert.LessOrEqual(t, loaded.Weight, 200_000)
	assert.Greater(t, loaded.Weight, 10_000, "it was weighed")
	t.Logf("%d claims, scrolled: %s", claims, scroll(page))

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for round := 0; ctx.Err() == nil; round++ {
			s := many(claims)
			for i := range 100 {
				s.Pods[(round*100+i)%claims].Phase = "Pending"
			}
			server.Show(s, "")
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
	t.Logf("%d claims, scrolled while 100 pods change twice a second: %s", claims, scroll(page))
	cancel()
	<-ended
	require.Empty(t, b.Failed())
}
