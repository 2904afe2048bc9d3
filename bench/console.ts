/**
 * the console in a real Chromium: first view, how soon a dead pod is gone from the page, a large fleet
 */

import { largeFleet } from './console/large-fleet.js';
import { onTheDemo } from './console/on-the-demo.js';
import { runArea } from './support/run.js';

await runArea('console', { onTheDemo, largeFleet });
