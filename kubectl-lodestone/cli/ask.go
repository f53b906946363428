package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Ask returns nil if yes is set or the user types word; otherwise the error says that nothing was changed. The prompt goes to out. While
// the user thinks, the time of a context of Within stands still. It does not wait for an answer once ctx has ended.
func Ask(ctx context.Context, in io.Reader, out io.Writer, yes bool, word string) error {
	if yes {
		return nil
	}
	if limit, ok := ctx.Value(limitKey{}).(*limited); ok {
		defer limit.pause()()
	}
	fmt.Fprintf(out, "Type %s to go on: ", word)
	typed := make(chan string, 1)
	go func() { // it ends with the program if the user does not answer
		line, err := bufio.NewReader(in).ReadString('\n')
		if err != nil && line == "" {
			fmt.Fprintln(out)
		}
		typed <- line
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(out)
		return Refuse("nothing was changed, because the command was stopped before %q was typed: %w", word, ctx.Err())
	case line := <-typed:
		if strings.TrimSpace(line) != word {
			return Refuse("nothing was changed, because %q was not typed: answer the question, or give --yes", word)
		}
	}
	return nil
}

// Within is context.WithTimeout for a command that asks its user something: the time that Ask takes does not count.
func Within(parent context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	c := &limited{Context: parent, done: make(chan struct{}), until: time.Now().Add(limit)}
	c.mu.Lock() // it may end at once
	c.timer = time.AfterFunc(limit, func() { c.end(context.DeadlineExceeded) })
	c.mu.Unlock()
	stop := context.AfterFunc(parent, func() { c.end(parent.Err()) })
	return c, func() {
		stop()
		c.end(context.Canceled)
	}
}

// limitKey finds the limited context that another one is made of.
type limitKey struct{}

// limited is a context whose time can stand still.
type limited struct {
	context.Context // its parent
	done            chan struct{}

	mu    sync.Mutex
	err   error
	until time.Time
	timer *time.Timer
}

func (c *limited) Done() <-chan struct{} { return c.done }

func (c *limited) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *limited) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if earlier, ok := c.Context.Deadline(); ok && earlier.Before(c.until) {
		return earlier, true
	}
	return c.until, true
}

func (c *limited) Value(key any) any {
	if key == (limitKey{}) {
		return c
	}
	return c.Context.Value(key)
}

func (c *limited) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		c.timer.Stop()
		close(c.done)
	}
}

// pause has the time stand still until what it returns is called.
func (c *limited) pause() (resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.timer.Stop() {
		return func() {}
	}
	left := time.Until(c.until)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err == nil {
			c.until = time.Now().Add(left)
			c.timer.Reset(left)
		}
	}
}
