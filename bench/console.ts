/**
 * Console in a real Chromium: first view, time until a crashed pod disappears from the page, a large fleet
 */
import { largeFleet } from './console/large-fleet.js';
import { onTheDemo } from './console/on-the-demo.js';
import { runArea } from './support/run.js';

await runArea('console', { onTheDemo, largeFleet });
